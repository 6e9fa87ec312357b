//! Plans of batch after batch: the last one serves for as long as the items are alike.

use super::output::{Options, Ragged};
use super::plan::{Plan, plan};
use super::windows;
use crate::error::Result;
use crate::item::Item;
use crate::sample::Draws;
use std::borrow::Borrow;
use std::sync::Arc;

/// Makes plans with the same options, and keeps the last one for as long as it serves.
#[derive(Debug)]
pub struct Planner {
    ragged: Ragged,
    columns: Option<Vec<String>>,
    last: Option<Arc<Plan>>,
}

impl Planner {
    /// A planner with these options.
    pub fn new(options: &Options<'_>) -> Self {
        Self { ragged: options.ragged, columns: options.columns.map(<[String]>::to_vec), last: None }
    }

    /// The plan of draws: of their items, or of the windows that were drawn of these.
    pub fn plan_draws(&mut self, draws: &Draws) -> Result<Arc<Plan>> {
        match &draws.wanted_windows {
            None => self.plan(&draws.items),
            Some(wanted) => {
                let options = Options { ragged: self.ragged, columns: self.columns.as_deref() };
                windows::plan(draws, wanted, &options).map(Arc::new)
            }
        }
    }

    /// As [`plan`]. The same plan as before where the batch has the same size and all its items the pattern of the
    /// batch before.
    pub fn plan<T: Borrow<Item>>(&mut self, items: &[T]) -> Result<Arc<Plan>> {
        if let Some(last) = self.last.as_ref().filter(|last| last.serves(items)) {
            return Ok(Arc::clone(last));
        }
        let options = Options { ragged: self.ragged, columns: self.columns.as_deref() };
        let plan = Arc::new(plan(items, &options)?);
        self.last = Some(Arc::clone(&plan));
        Ok(plan)
    }
}
