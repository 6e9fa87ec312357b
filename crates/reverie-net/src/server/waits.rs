//! The reason why a request waits: a label, and words.

use reverie_core::table::{InsertReason, SampleReason, SharedTable};
use std::sync::Arc;

/// The reason why an insert waits. `committed`: it is in its table, and only the journal has not written it.
pub(super) fn insert(table: &SharedTable, committed: bool) -> (&'static str, String) {
    let why = table.why();
    match why.insert_reason {
        _ if committed => journal(),
        None => turn(),
        Some(reason) => {
            let kind = match reason {
                InsertReason::Limiter(_) => "limiter",
                InsertReason::Bytes { .. } => "bytes",
                InsertReason::Memory { .. } => "memory",
                InsertReason::Journal(_) => "journal",
                InsertReason::Turn => "turn",
            };
            (kind, reason.to_string())
        }
    }
}

/// The reason why draws from some of these tables wait. `journaled`: they may wait until a journal has written them.
pub(super) fn sample<'a>(
    tables: impl IntoIterator<Item = &'a Arc<SharedTable>>,
    journaled: bool,
) -> (&'static str, String) {
    let Some(reason) = tables.into_iter().find_map(|table| table.why().sample_reason) else {
        return if journaled { journal() } else { turn() };
    };
    let kind = match reason {
        SampleReason::Limiter(_) => "limiter",
        SampleReason::TooFewItems { .. } => "items",
        SampleReason::Turn => "turn",
    };
    (kind, reason.to_string())
}

fn turn() -> (&'static str, String) {
    ("turn", InsertReason::Turn.to_string())
}

/// The wait until the journal has written what was done.
pub(super) fn journal() -> (&'static str, String) {
    ("journal", "the journal has not written it yet".to_owned())
}
