//! Restores a checkpoint into the tables of a server that starts.

use super::load::Checkpoint;
use crate::error::{CountedNoun, Result};
use crate::table::{Row, SharedTable, TableContents, TableOptions, Tables};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A difference between the tables and the checkpoint: the tables' own configuration applies.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// An option has another value now.
    Option {
        /// The table.
        table: String,
        /// The option, as users know it.
        option: &'static str,
        /// The checkpoint's value.
        was: String,
        /// The present value.
        now: String,
    },
    /// A table of the checkpoint that the server does not have; its items were left out.
    NoTable {
        /// The table.
        table: String,
        /// Items left out.
        items: u64,
    },
    /// A table of the server that the checkpoint does not have; it starts empty.
    NotSaved {
        /// The table.
        table: String,
    },
    /// Items above the table's present limits; its remover evicted them.
    Evicted {
        /// The table.
        table: String,
        /// The number of items.
        items: u64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { table, option, was, now } => {
                write!(f, "table '{table}': {option} is {now}, the checkpoint's was {was}")
            }
            Self::NoTable { table, items } => {
                let (items, were) = (CountedNoun(*items, "item"), if *items == 1 { "was" } else { "were" });
                write!(f, "table '{table}': its {items} {were} left out, as the server has no such table")
            }
            Self::NotSaved { table } => write!(f, "table '{table}': empty, as the checkpoint has no such table"),
            Self::Evicted { table, items } => {
                let (items, were) = (CountedNoun(*items, "item"), if *items == 1 { "was" } else { "were" });
                write!(f, "table '{table}': {items} beyond its limits {were} removed by its remover")
            }
        }
    }
}

/// The outcome of a restore.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoreOutcome {
    /// The tables that got items back, and the number of items in each.
    pub tables: Vec<(String, u64)>,
    /// The differences between the tables and the checkpoint.
    pub differences: Vec<Difference>,
}

impl Checkpoint {
    /// Puts the items into the tables of the same names, which must be empty and unused, each under its key.
    ///
    /// Either all tables accept their items or, on an error, none does. The tables' configuration applies; differences
    /// from the checkpoint's are returned.
    ///
    /// `now` is the time since the Unix epoch. An item's age is limited by the reading of the tables' clock: move the
    /// clock forward by [`Checkpoint::clock_at`] first.
    pub fn restore(mut self, tables: &Tables, now: Duration) -> Result<RestoreOutcome> {
        let mut restored = RestoreOutcome { tables: Vec::new(), differences: Vec::new() };
        let (theirs, ours) = (self.clock_at(now), tables.now());
        let saved = self.summary.tables.iter().map(|table| table.options.clone()).zip(std::mem::take(&mut self.tables));
        let mut by_name: HashMap<String, (TableOptions, TableContents)> =
            saved.map(|(options, items)| (options.name.clone(), (options, items))).collect();
        let mut ready: Vec<(&Arc<SharedTable>, TableContents)> = Vec::new();
        for table in tables.iter() {
            let Some((options, mut items)) = by_name.remove(table.name()) else {
                restored.differences.push(Difference::NotSaved { table: table.name().to_owned() });
                continue;
            };
            differences(&options, &table.info().options, &mut restored.differences);
            items.rows.iter_mut().for_each(|row| shift(row, theirs, ours));
            table.check_restoring(&items)?;
            ready.push((table, items));
        }
        for table in self.summary.tables.iter().filter(|table| by_name.contains_key(&table.options.name)) {
            let (table, items) = (table.options.name.clone(), table.size);
            restored.differences.push(Difference::NoTable { table, items });
        }
        self.forgotten.iter().for_each(|sender| tables.forgotten().add(*sender));
        for (table, items) in ready {
            let (before, name) = (items.rows.len() as u64, table.name().to_owned());
            table.restore(items)?;
            let size = table.info().size;
            if size < before {
                restored.differences.push(Difference::Evicted { table: name.clone(), items: before - size });
            }
            restored.tables.push((name, size));
        }
        Ok(restored)
    }

    /// Changes the limits of unused tables to those that [`Change`](crate::table::Change)s had left when this was saved.
    ///
    /// Tables whose constructor now gives other limits than before keep those, unless `always`.
    pub fn restore_limits(&self, tables: &Tables, always: bool) -> Result<()> {
        for saved in self.summary.tables.iter().map(|table| &table.options) {
            let Ok(table) = tables.get(&saved.name) else { continue };
            let present = table.info().options.limits();
            let changed = saved.constructed.is_some_and(|constructed| constructed == present || always);
            if changed && saved.limits() != present {
                table.configure(saved.limits().into())?;
            }
        }
        Ok(())
    }

    /// The reading that the clock of the checkpoint's tables would have now, if their process had continued.
    pub fn clock_at(&self, now: Duration) -> Duration {
        self.summary.clock + now.saturating_sub(self.summary.created)
    }
}

/// Keeps the item's age, as far as the clock reaches back.
fn shift(row: &mut Row, theirs: Duration, ours: Duration) {
    let age = (theirs.as_nanos() as u64).saturating_sub(row.inserted_at);
    row.inserted_at = (ours.as_nanos() as u64).saturating_sub(age);
}

/// The bound as text: the largest number, which stands for none, as `inf`.
fn shown_bound(bound: f64) -> String {
    if bound.abs() == f64::MAX { f64::INFINITY.copysign(bound).to_string() } else { bound.to_string() }
}

fn differences(was: &TableOptions, now: &TableOptions, into: &mut Vec<Difference>) {
    type OptionFormatter = fn(&TableOptions) -> String;
    let shown: [(&'static str, OptionFormatter); 8] = [
        ("sampler", |options| options.sampler.to_string()),
        ("remover", |options| options.remover.to_string()),
        ("max_size", |options| options.max_size.to_string()),
        ("rate_limiter", |options| {
            let limiter = &options.limiter;
            let (ratio, least) = (limiter.samples_per_insert(), limiter.min_size_to_sample());
            let (min, max) = (shown_bound(limiter.min_diff()), shown_bound(limiter.max_diff()));
            format!("RateLimiter({ratio}, {least}, {min}, {max})")
        }),
        ("max_times_sampled", |options| options.max_times_sampled.to_string()),
        ("signature", |options| match &options.signature {
            None => "None".to_owned(),
            Some(signature) => signature.to_string(),
        }),
        ("max_bytes", |options| options.max_bytes.map_or("None".to_owned(), |bytes| bytes.to_string())),
        ("compression", |options| options.compression.to_string()),
    ];
    for (option, show) in shown {
        let (was, now_is) = (show(was), show(now));
        if was != now_is {
            into.push(Difference::Option { table: now.name.clone(), option, was, now: now_is });
        }
    }
}
