//! Keeps the last plan, which fits the next batch if the items are alike.

use super::output::{BatchOptions, Ragged};
use super::plan::{Plan, plan};
use super::windows;
use crate::error::Result;
use crate::item::Item;
use crate::sample::Draws;
use std::borrow::Borrow;
use std::sync::Arc;

/// Makes plans with the same options, and keeps the last one for as long as it fits.
#[derive(Debug)]
pub struct Planner {
    ragged: Ragged,
    columns: Option<Vec<String>>,
    last: Option<Arc<Plan>>,
}

impl Planner {
    /// A planner with these options.
    pub fn new(options: &BatchOptions<'_>) -> Self {
        Self { ragged: options.ragged, columns: options.columns.map(<[String]>::to_vec), last: None }
    }

    /// The plan for draws: for their items, or for their windows.
    pub fn plan_draws(&mut self, draws: &Draws) -> Result<Arc<Plan>> {
        match &draws.wanted_windows {
            None => self.plan(&draws.items),
            Some(wanted) => {
                let options = BatchOptions { ragged: self.ragged, columns: self.columns.as_deref() };
                windows::plan(draws, wanted, &options).map(Arc::new)
            }
        }
    }

    /// Like [`plan`]. Reuses the last plan if the batch has the same size and all its items have the same pattern.
    pub fn plan<T: Borrow<Item>>(&mut self, items: &[T]) -> Result<Arc<Plan>> {
        if let Some(last) = self.last.as_ref().filter(|last| last.serves(items)) {
            return Ok(Arc::clone(last));
        }
        let options = BatchOptions { ragged: self.ragged, columns: self.columns.as_deref() };
        let plan = Arc::new(plan(items, &options)?);
        self.last = Some(Arc::clone(&plan));
        Ok(plan)
    }
}
