//! Changes of items by their keys: new priorities, and deletion.

use super::Table;
use crate::error::Result;
use crate::item::Key;
use crate::table::policy::query::all_hold;
use crate::table::policy::selector::Selector;
use crate::table::types::changes::{ChangeCounts, Neighbours, Updates};
use crate::table::types::query::Condition;

impl Table {
    /// Sets priorities. If the selectors refuse one of them, the call fails and nothing is changed.
    pub fn update(&mut self, updates: &Updates<'_>) -> Result<ChangeCounts> {
        let (result, changed) = self.set(updates)?;
        if let Some(neighbours) = updates.neighbours {
            self.raise(neighbours, changed.into_iter().map(|(slot, _)| slot));
        }
        Ok(result)
    }

    /// Sets priorities without the neighbours; returns the keys whose neighbours [`Table::raise_before`] must raise.
    pub fn update_alone(&mut self, updates: &Updates<'_>) -> Result<(ChangeCounts, Vec<i64>)> {
        let (result, changed) = self.set(updates)?;
        Ok((result, changed.into_iter().map(|(slot, _)| self.slots.key(slot).get()).collect()))
    }

    /// Raises the items inserted before those whose priorities were set; missing keys are skipped.
    pub fn raise_before(&mut self, keys: &[i64], neighbours: Neighbours) {
        let slots: Vec<u32> = keys.iter().filter_map(|key| self.slots.find(Key::from(*key))).collect();
        self.raise(neighbours, slots.into_iter());
    }

    /// Sets priorities; returns the changed slots and their new priorities.
    fn set(&mut self, updates: &Updates<'_>) -> Result<(ChangeCounts, Vec<(u32, f64)>)> {
        let Updates { keys, priorities, if_version, .. } = *updates;
        for key in keys {
            let slot = Key::from(*key).slot();
            if slot < self.slots.allocated() {
                self.slots.prefetch_update(slot);
            }
        }
        self.check_priorities(priorities)?;
        let mut changes = Vec::with_capacity(keys.len());
        // Check every version before the first change: a key may occur twice.
        for (index, (key, priority)) in keys.iter().zip(priorities).enumerate() {
            let Some(slot) = self.find(Key::from(*key)) else { continue };
            if if_version.is_none_or(|versions| versions[index] == self.slots.slot(slot).version()) {
                changes.push((slot, *priority));
            }
        }
        changes.iter().for_each(|(slot, priority)| self.set_priority(*slot, *priority));
        let result = ChangeCounts { applied: changes.len() as u64, stale: (keys.len() - changes.len()) as u64 };
        self.change_selectors(&changes);
        self.stats.updated += result.applied;
        self.stats.stale_updates += result.stale;
        Ok((result, changes))
    }

    fn change_selectors(&mut self, changes: &[(u32, f64)]) {
        self.sampler.update_many(changes);
        self.remover.update_many(changes);
    }

    /// Refuses priorities that the selectors do not accept.
    pub fn check_priorities(&self, priorities: &[f64]) -> Result<()> {
        priorities.iter().try_for_each(|priority| self.check_priority(*priority))
    }

    pub(super) fn set_priority(&mut self, slot: u32, priority: f64) {
        self.order += 1;
        let order = self.order;
        self.note_priority(slot, priority);
        self.slots.set_priority(slot, priority, order);
    }

    /// Raises the items inserted before the changed ones.
    ///
    /// All changed items have their new priorities already, so that their order makes no difference.
    fn raise(&mut self, neighbours: Neighbours, changed: impl Iterator<Item = u32>) {
        let mut changes = Vec::new();
        for of in changed {
            let known = |slot: u32| {
                let slot = self.slots.slot(slot);
                (slot.priority(), slot.item.as_ref().map_or((0, 0), |item| (item.stream, item.episode)))
            };
            let (mut decayed, (stream, episode)) = known(of);
            let mut at = of;
            for _ in 0..neighbours.count {
                decayed *= neighbours.decay;
                let Some(before) = self.lineage.before(at, stream) else { break };
                let item = self.slots.slot(before).item.as_ref();
                if item.is_none_or(|item| item.episode != episode) {
                    break;
                }
                if decayed > 0.0 && decayed > self.slots.slot(before).priority() {
                    self.set_priority(before, decayed);
                    changes.push((before, decayed));
                }
                at = before;
            }
        }
        self.change_selectors(&changes);
    }

    /// Deletes items; missing keys are counted and ignored.
    pub fn delete(&mut self, keys: &[i64]) -> ChangeCounts {
        self.delete_where(keys, &[], 0)
    }

    /// Deletes items for which every condition holds at `now`, in nanoseconds of the table's clock.
    ///
    /// The other items are counted with the missing keys. In a queue, another item may take the place of a deleted one:
    /// see [`Table::remove_undrawn`].
    pub fn delete_where(&mut self, keys: &[i64], conditions: &[Condition], now: u64) -> ChangeCounts {
        let mut result = ChangeCounts::default();
        for key in keys {
            let slot = self.find(Key::from(*key));
            match slot.filter(|slot| all_hold(conditions, self.slots.slot(*slot), now)) {
                Some(slot) => {
                    self.remove_undrawn(slot);
                    result.applied += 1;
                }
                None => result.stale += 1,
            }
        }
        self.stats.stale_deletes += result.stale;
        result
    }
}
