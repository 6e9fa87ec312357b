//! Changes of items by their keys, at a shared table.

use super::SharedTable;
use crate::error::{Error, Result};
use crate::table::types::changes::{ChangeCounts, Neighbours, Updates};

impl SharedTable {
    /// Sets priorities; see [`Table::update`](crate::table::Table::update). All slices have one length.
    pub fn update(&self, keys: &[i64], priorities: &[f64], if_version: Option<&[u32]>) -> Result<ChangeCounts> {
        let updates = Updates { keys, priorities, if_version, neighbours: None };
        Ok(self.mutate(&updates, &[])?.0)
    }

    /// Deletes items, then sets priorities, as one decision.
    ///
    /// If there are very many items, their neighbours are raised afterwards, some at a time.
    pub fn mutate(&self, updates: &Updates<'_>, deletes: &[i64]) -> Result<(ChangeCounts, ChangeCounts)> {
        let Updates { keys, priorities, if_version, .. } = *updates;
        if keys.len() != priorities.len() || if_version.is_some_and(|versions| versions.len() != keys.len()) {
            return Err(Error::InvalidArgument(format!(
                "table '{}': keys, priorities and versions must have one length, got {}, {} and {}",
                self.name,
                keys.len(),
                priorities.len(),
                if_version.map_or("none".to_owned(), |versions| versions.len().to_string())
            )));
        }
        let at_once = updates.neighbours.map_or(usize::MAX, Neighbours::at_once);
        let (updated, deleted, raising) = self.decide(|state, _| {
            state.check_open(&self.name)?;
            // Refused priorities fail the whole call; without deletes `update` checks them.
            if !deletes.is_empty() {
                state.table.check_priorities(priorities)?;
            }
            let deleted = state.table.delete(deletes);
            let (updated, raising) = match keys.len() <= at_once {
                true => (state.table.update(updates)?, Vec::new()),
                false => state.table.update_alone(updates)?,
            };
            Ok((updated, deleted, raising))
        })?;
        for (some, neighbours) in raising.chunks(at_once).zip(std::iter::repeat(updates.neighbours)) {
            self.decide(|state, _| neighbours.into_iter().for_each(|of| state.table.raise_before(some, of)));
        }
        Ok((updated, deleted))
    }

    /// Deletes items; missing keys are counted and ignored.
    pub fn delete(&self, keys: &[i64]) -> Result<ChangeCounts> {
        self.decide(|state, _| {
            state.check_open(&self.name)?;
            Ok(state.table.delete(keys))
        })
    }
}
