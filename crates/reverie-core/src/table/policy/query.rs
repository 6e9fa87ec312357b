//! The items that fulfil a query, and their order.

use crate::error::{Error, Result};
use crate::table::policy::slots::page::Cut;
use crate::table::policy::slots::slot::{Age, Slot};
use crate::table::types::query::{Comparison, Condition, Field, Query};
use std::cmp::Ordering;
use std::time::Duration;

impl Condition {
    /// Refuses NaN.
    pub fn new(field: Field, comparison: Comparison, value: f64) -> Result<Self> {
        match value.is_nan() {
            true => Err(Error::InvalidArgument("where: nothing compares with NaN; give a number".to_owned())),
            false => Ok(Self { field, comparison, value }),
        }
    }

    fn holds(&self, slot: &Slot, now: u64) -> bool {
        let number = self.field.of(slot, now);
        match self.comparison {
            Comparison::Less => number < self.value,
            Comparison::AtMost => number <= self.value,
            Comparison::Equal => number == self.value,
            Comparison::NotEqual => number != self.value,
            Comparison::AtLeast => number >= self.value,
            Comparison::More => number > self.value,
        }
    }
}

impl Field {
    fn of(self, slot: &Slot, now: u64) -> f64 {
        match self {
            Field::Priority => slot.priority(),
            Field::TimesSampled => f64::from(slot.times_sampled()),
            Field::Version => f64::from(slot.version()),
            Field::Age => Duration::from_nanos(now.saturating_sub(slot.inserted_at)).as_secs_f64(),
        }
    }
}

/// True if every condition holds; `now` in nanoseconds of the table's clock.
pub(in crate::table) fn all_hold(conditions: &[Condition], slot: &Slot, now: u64) -> bool {
    conditions.iter().all(|condition| condition.holds(slot, now))
}

impl Query {
    /// The slots of a cut that fulfil the query, in its order.
    pub(in crate::table) fn find<'a>(&self, cut: &'a Cut, now: u64) -> Vec<(u32, &'a Slot)> {
        let fits = cut.iter().filter(|(_, slot, _)| all_hold(&self.conditions, slot, now));
        let mut found: Vec<(u32, &Slot, &Age)> = fits.collect();
        let compare = |left: &(u32, &Slot, &Age), right: &(u32, &Slot, &Age)| {
            let by_field = self.order.map_or(Ordering::Equal, |(field, descending)| {
                let order = field.of(left.1, now).total_cmp(&field.of(right.1, now));
                if descending { order.reverse() } else { order }
            });
            by_field.then_with(|| left.2.inserted.cmp(&right.2.inserted))
        };
        if let Some(limit) = self.limit.filter(|limit| *limit < found.len()) {
            if limit > 0 {
                found.select_nth_unstable_by(limit - 1, compare);
            }
            found.truncate(limit);
        }
        found.sort_unstable_by(compare);
        found.into_iter().map(|(index, slot, _)| (index, slot)).collect()
    }
}
