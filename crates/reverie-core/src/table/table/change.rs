//! How items are changed by their keys: new priorities, and deletion.

use super::Table;
use crate::error::{Error, Result};
use crate::item::Key;
use crate::table::query::{Condition, all_hold};
use crate::table::selector::Selector;

/// What a batch of changes came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Keys whose item was there, and was changed.
    pub applied: u64,
    /// Keys that were ignored: the item is gone, or was updated since the version that was named.
    pub stale: u64,
}

/// New priorities for items. All slices have one length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Updates<'a> {
    /// Keys that are not here any more are counted and ignored.
    pub keys: &'a [i64],
    /// Where a key occurs twice the last one counts.
    pub priorities: &'a [f64],
    /// Where given, an item is changed only where its version is the one named.
    pub if_version: Option<&'a [u32]>,
    /// Where given, what came in before each is raised, too.
    pub neighbours: Option<Neighbours>,
}

/// How far a priority reaches back: of an item that was given the priority p, the i-th before it gets
/// `max(own, p * decay ** i)`, for i from 1 to `count` (Brittain et al. 2019, prioritized sequence experience replay,
/// section 4). Those before it are of the same stream of steps, and of the same episode where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbours {
    count: u32,
    decay: f64,
}

impl Neighbours {
    /// The most that may be raised for one update: with a decay of 0.995 the last of them by less than a hundredth.
    pub const MOST: u32 = 1024;

    /// Refuses no neighbours, more than [`Neighbours::MOST`], and a decay that is not in (0, 1].
    pub fn new(count: u64, decay: f64) -> Result<Self> {
        let refuse = |reason: String| Err(Error::InvalidArgument(reason));
        match u32::try_from(count) {
            Ok(count @ 1..=Self::MOST) if decay > 0.0 && decay <= 1.0 => Ok(Self { count, decay }),
            Ok(1..=Self::MOST) => refuse(format!("neighbours: decay must be above 0 and at most 1, got {decay}")),
            _ => refuse(format!("neighbours: k must be between 1 and {}, got {count}", Self::MOST)),
        }
    }

    /// How many, and the decay.
    pub fn parts(self) -> (u32, f64) {
        (self.count, self.decay)
    }
}

impl Table {
    /// Sets priorities. A priority that the selectors refuse refuses the call, and nothing is changed.
    pub fn update(&mut self, updates: &Updates<'_>) -> Result<Updated> {
        let Updates { keys, priorities, if_version, neighbours } = *updates;
        for key in keys {
            let slot = Key::from(*key).slot();
            if slot < self.slots.allocated() {
                self.slots.prefetch_update(slot);
            }
        }
        self.check_priorities(priorities)?;
        let mut changes = Vec::with_capacity(keys.len());
        for (index, (key, priority)) in keys.iter().zip(priorities).enumerate() {
            let Some(slot) = self.find(Key::from(*key)) else { continue };
            if if_version.is_some_and(|versions| versions[index] != self.slots.slot(slot).version()) {
                continue;
            }
            self.set_priority(slot, *priority);
            changes.push((slot, *priority));
        }
        let result = Updated { applied: changes.len() as u64, stale: (keys.len() - changes.len()) as u64 };
        if let Some(neighbours) = neighbours {
            self.raise(neighbours, &mut changes);
        }
        self.sampler.update_many(&changes);
        self.remover.update_many(&changes);
        self.stats.updated += result.applied;
        self.stats.stale_updates += result.stale;
        Ok(result)
    }

    /// Refuses priorities that the selectors cannot hold.
    pub fn check_priorities(&self, priorities: &[f64]) -> Result<()> {
        // What every selector takes is not worth asking each about.
        match priorities.iter().all(|priority| *priority >= 0.0 && *priority < f64::INFINITY) {
            true => Ok(()),
            false => priorities.iter().try_for_each(|priority| self.check_priority(*priority)),
        }
    }

    pub(super) fn set_priority(&mut self, slot: u32, priority: f64) {
        self.order += 1;
        let order = self.order;
        self.largest.remove(self.slots.slot(slot).priority());
        self.largest.add(priority);
        self.slots.set_priority(slot, priority, order);
    }

    /// Raises what came in before the changed items, and adds it to the changes. All of these have their priorities
    /// already, so that their order makes no difference.
    fn raise(&mut self, neighbours: Neighbours, changes: &mut Vec<(u32, f64)>) {
        for index in 0..changes.len() {
            let (of, _) = changes[index];
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
    }

    /// Deletes items; unknown keys are counted and ignored.
    pub fn delete(&mut self, keys: &[i64]) -> Updated {
        self.delete_where(keys, &[], 0)
    }

    /// Deletes those for which every condition holds at `now`, nanoseconds of the table's clock; the others are counted
    /// with the unknown keys.
    pub fn delete_where(&mut self, keys: &[i64], conditions: &[Condition], now: u64) -> Updated {
        let mut result = Updated::default();
        for key in keys {
            let slot = self.find(Key::from(*key));
            match slot.filter(|slot| all_hold(conditions, self.slots.slot(*slot), now)) {
                Some(slot) => {
                    self.remove(slot);
                    result.applied += 1;
                }
                None => result.stale += 1,
            }
        }
        self.stats.stale_deletes += result.stale;
        result
    }
}
