//! The form in which a client reads a batch.

use crate::convert;
use crate::proto;
use reverie_core::Result;
use reverie_core::batch::{BatchOptions, Planner, Ragged};

/// The read options of a batch.
#[derive(Clone, Default, PartialEq)]
pub(super) struct ReadOptions {
    columns: Option<Vec<String>>,
    ragged: Ragged,
}

impl ReadOptions {
    pub(super) fn decode(message: Option<proto::Reading>) -> Result<Self> {
        let (columns, ragged) = convert::batch::decode_read_options(message)?;
        Ok(Self { columns, ragged })
    }

    pub(super) fn planner(&self) -> Planner {
        Planner::new(&BatchOptions { ragged: self.ragged, columns: self.columns.as_deref() })
    }
}
