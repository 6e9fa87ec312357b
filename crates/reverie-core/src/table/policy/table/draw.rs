//! Draws from a table: a batch of n is n single draws in sequence.

use super::Table;
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::sample::Draws;
use crate::table::policy::selector::{Pick, Selector};
use crate::table::policy::slots::slot::Slot;
use crate::table::types::copies::FirstDraw;
use crate::table::types::selector::SelectorOptions;
use smallvec::SmallVec;

/// Items picked before their slots are prefetched: as many misses as a processor has in flight.
const PICKS_AHEAD: usize = 64;

impl Table {
    /// The number of `wanted` single draws in sequence that the limiter allows now.
    fn allowed(&self, wanted: usize) -> usize {
        let limiter = &self.options.limiter;
        if limiter.can_sample(&self.counters, wanted as u64) {
            return wanted;
        }
        (1..=wanted).take_while(|n| limiter.can_sample(&self.counters, *n as u64)).count()
    }

    /// Draws up to `wanted` items, as many as the limiter allows; returns how many were drawn.
    ///
    /// The result is the same as that of as many single draws in a row.
    pub fn draw(&mut self, wanted: usize, now: u64, into: &mut Draws) -> usize {
        let made = if self.options.max_times_sampled == 0 {
            let allowed = if self.is_empty() { 0 } else { self.allowed(wanted) };
            let mut picks = std::mem::take(&mut self.picks);
            picks.clear();
            self.pick(allowed, &mut picks);
            self.deliver(&picks, now, into);
            self.picks = picks;
            allowed
        } else {
            let mut made = 0;
            while made < wanted && self.options.limiter.can_sample(&self.counters, 1) {
                let Some(pick) = self.sampler.draw() else { break };
                self.deliver(&[pick], now, into);
                self.hand_out(pick.slot, now, into);
                made += 1;
            }
            made
        };
        into.smallest_probability = self.sampler.smallest_probability();
        made
    }

    /// Picks `n` items, and prefetches the slots of some while it picks the next.
    fn pick(&mut self, n: usize, picks: &mut Vec<Pick>) {
        // The draws of a stratified batch belong together.
        let at_once = if matches!(self.options.sampler, SelectorOptions::Stratified { .. }) { n } else { PICKS_AHEAD };
        let mut left = n;
        while left > 0 {
            let (before, some) = (picks.len(), left.min(at_once));
            self.sampler.draw_many(some, picks);
            picks[before..].iter().for_each(|pick| self.slots.prefetch(pick.slot));
            left -= some;
        }
    }

    /// Like [`Table::draw`], with no item twice among the draws in `into` and these.
    ///
    /// Returns fewer than `wanted` also if the table has no other items.
    pub fn draw_distinct(&mut self, wanted: usize, now: u64, into: &mut Draws) -> Result<usize> {
        if self.options.sampler.is_deterministic() {
            return Err(Error::InvalidArgument(format!(
                "table '{}': sampling without replacement needs a random sampler, this one is {}",
                self.options.name, self.options.sampler
            )));
        }
        if !self.options.limiter.can_sample(&self.counters, 1) {
            return Ok(0);
        }
        let all = self.sampler.masses();
        // Items already drawn leave the sampler while the request is served; the rest is drawn as usual.
        let mut out: Vec<u32> = into.keys.iter().filter_map(|key| self.find(*key)).collect();
        out.iter().for_each(|slot| self.sampler.remove(*slot));
        let mut made = 0;
        while made < wanted && self.options.limiter.can_sample(&self.counters, 1) {
            let left = self.sampler.masses();
            let Some(pick) = self.sampler.draw() else { break };
            // Items that are drawn only once no others are left compete among themselves.
            let (left, all) = if left.0 > 0.0 { (left.0, all.0) } else { (left.1, all.1) };
            let of_all = if left < all { pick.probability * (left / all) } else { pick.probability };
            self.deliver(&[Pick { slot: pick.slot, probability: of_all }], now, into);
            made += 1;
            if !self.hand_out(pick.slot, now, into) {
                self.sampler.remove(pick.slot);
                out.push(pick.slot);
            }
        }
        out.iter().for_each(|slot| self.sampler.insert(*slot, self.slots.slot(*slot).priority()));
        into.smallest_probability = self.sampler.smallest_probability();
        Ok(made)
    }

    /// Follows a draw from a table that deletes sampled items: removes a used-up item, or leases the draw.
    ///
    /// Returns true if the item is used up.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, slot: u32, now: u64, into: &Draws) -> bool {
        let used_up = self.is_used_up(slot);
        match into.lessee {
            Some(lessee) if self.options.max_times_sampled > 0 => self.lease(slot, lessee, now),
            _ if used_up => self.remove(slot),
            _ => {}
        }
        used_up
    }

    pub(super) fn is_used_up(&self, slot: u32) -> bool {
        let most = self.options.max_times_sampled;
        most > 0 && self.slots.slot(slot).times_sampled() >= most
    }

    /// Counts the draws and outputs them column by column, so that the cache misses of a batch overlap.
    ///
    /// The caller has prefetched the slots of many picks.
    pub(super) fn deliver(&mut self, picks: &[Pick], now: u64, into: &mut Draws) {
        if let [pick] = picks {
            return self.deliver_one(*pick, now, into);
        }
        let drawn = into.len();
        let Self { slots, stats, .. } = self;
        // Counted in order: an item may be drawn twice in a batch.
        stats.note_draws(picks.iter().map(|pick| {
            let slot = slots.count_draw(pick.slot);
            slot.item.iter().for_each(Item::prefetch);
            into.times_sampled.push(slot.times_sampled());
            (slot.times_sampled(), now.saturating_sub(slot.inserted_at))
        }));
        let slots: SmallVec<[&Slot; 256]> = picks.iter().map(|pick| self.slots.slot(pick.slot)).collect();
        let shard = self.options.shard;
        match self.slots.has_copies() {
            false => into
                .keys
                .extend(slots.iter().zip(picks).map(|(slot, pick)| Key::new(shard, slot.generation, pick.slot))),
            true => into.keys.extend(picks.iter().map(|pick| self.slots.key(pick.slot))),
        }
        into.probabilities.extend(picks.iter().map(|pick| pick.probability));
        into.priorities.extend(slots.iter().map(|slot| slot.priority()));
        into.versions.extend(slots.iter().map(|slot| slot.version()));
        into.inserted_at.extend(slots.iter().map(|slot| slot.inserted_at));
        into.table_sizes.extend(std::iter::repeat_n(self.len() as u64, picks.len()));
        into.items.extend(slots.iter().map(|slot| slot.item.clone().expect("a picked slot holds an item")));
        self.counters.samples += picks.len() as u64;
        if let Some(first) = &mut self.first_draws {
            first.extend((drawn..into.len()).filter(|draw| into.times_sampled[*draw] == 1).map(|draw| FirstDraw {
                item: into.items[draw].clone(),
                priority: into.priorities[draw],
                key: into.keys[draw],
            }));
        }
    }

    /// Outputs a single draw, as in a table that deletes sampled items: there are no misses to overlap.
    fn deliver_one(&mut self, pick: Pick, now: u64, into: &mut Draws) {
        let size = self.len() as u64;
        let times = self.slots.count_draw(pick.slot).times_sampled();
        let slot = self.slots.slot(pick.slot);
        self.stats.note_draw(times, now.saturating_sub(slot.inserted_at));
        let item = slot.item.clone().expect("a picked slot holds an item");
        let (key, priority) = (self.slots.key(pick.slot), slot.priority());
        if let Some(first) = &mut self.first_draws
            && times == 1
        {
            first.push(FirstDraw { item: item.clone(), priority, key });
        }
        into.times_sampled.push(times);
        into.keys.push(key);
        into.probabilities.push(pick.probability);
        into.priorities.push(priority);
        into.versions.push(slot.version());
        into.inserted_at.push(slot.inserted_at);
        into.table_sizes.push(size);
        into.items.push(item);
        self.counters.samples += 1;
    }
}
