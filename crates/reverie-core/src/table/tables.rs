//! The tables of one server: found by name, with the bytes that they may hold together.

use super::options::TableOptions;
use super::shared::{Inserts, SharedTable};
use super::table::Table;
use super::ticket::{Keys, Ticket};
use crate::append::Sink;
use crate::chunk::{Compression, Meter};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::sample::{Draws, SampleRequest, Source};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, OnceLock, Weak};

/// The bytes that all chunks of a server may take, and who waits for them.
pub(super) struct Budget {
    meter: Arc<Meter>,
    max_bytes: u64,
    tables: OnceLock<Vec<Weak<SharedTable>>>,
}

impl Budget {
    /// Bytes held and allowed, where an insert into this table has to wait for bytes. One that evicts does not.
    pub(super) fn blocks(&self, table: &Table) -> Option<(u64, u64)> {
        let held = self.meter.live_bytes();
        (held > self.max_bytes && !table.is_full()).then_some((held, self.max_bytes))
    }

    /// Refuses an insert that would wait for bytes which nothing that anybody does can free. Takes the tables'
    /// locks, one after the other.
    pub(super) fn refuse_hopeless(&self, table: &SharedTable) -> Result<()> {
        let held = self.meter.live_bytes();
        if held <= self.max_bytes || table.is_full() || self.tables().any(|table| table.consumes()) {
            return Ok(());
        }
        Err(Error::ResourceExhausted {
            what: format!("an insert into table '{}' with what the server holds", table.name()),
            needed: held,
            budget: self.max_bytes,
            hint: "no table gives bytes back by being sampled: raise the server's max_bytes, lower max_size, \
                   or give the tables a max_bytes of their own"
                .to_owned(),
        })
    }

    /// Bytes may have been freed: inserts that wait for them try again.
    pub(super) fn freed(&self) {
        if self.meter.live_bytes() <= self.max_bytes {
            self.tables().for_each(|table| table.retry());
        }
    }

    fn tables(&self) -> impl Iterator<Item = Arc<SharedTable>> {
        self.tables.get().into_iter().flatten().filter_map(Weak::upgrade)
    }
}

/// All tables of one server.
pub struct Tables {
    tables: Vec<Arc<SharedTable>>,
    meter: Arc<Meter>,
    max_bytes: Option<u64>,
}

impl Tables {
    /// Empty tables. `seed` is random, or fixed in tests.
    pub fn new(options: Vec<TableOptions>, max_bytes: Option<u64>, clock: &Arc<dyn Clock>, seed: u64) -> Result<Self> {
        if options.is_empty() {
            return Err(Error::InvalidArgument("a server needs at least one table".to_owned()));
        }
        if max_bytes == Some(0) {
            return Err(Error::InvalidArgument("the server's max_bytes must be at least 1".to_owned()));
        }
        let meter = Arc::new(Meter::default());
        let budget = max_bytes
            .map(|max_bytes| Arc::new(Budget { meter: Arc::clone(&meter), max_bytes, tables: OnceLock::new() }));
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tables: Vec<Arc<SharedTable>> = Vec::with_capacity(options.len());
        for options in options {
            if tables.iter().any(|table| table.name() == options.name) {
                return Err(Error::InvalidArgument(format!("two tables have the name '{}'", options.name)));
            }
            tables.push(SharedTable::with_budget(options, Arc::clone(clock), seeds.next_u64(), budget.clone())?);
        }
        if let Some(budget) = &budget {
            // Only just made, so it cannot have been set.
            let _ = budget.tables.set(tables.iter().map(Arc::downgrade).collect());
        }
        Ok(Self { tables, meter, max_bytes })
    }

    /// The table of that name.
    pub fn get(&self, name: &str) -> Result<&Arc<SharedTable>> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| Error::UnknownTable {
            name: name.to_owned(),
            known: self.tables.iter().map(|table| table.name().to_owned()).collect(),
        })
    }

    /// All tables in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedTable>> {
        self.tables.iter()
    }

    /// The bytes that all chunks hold, and their bound.
    pub fn bytes(&self) -> (&Arc<Meter>, Option<u64>) {
        (&self.meter, self.max_bytes)
    }

    /// Closes every table; idempotent.
    pub fn close(&self) {
        self.tables.iter().for_each(|table| table.close());
    }
}

impl Source for Tables {
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>> {
        self.get(table)?.sample(request)
    }
}

impl Sink for Tables {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.get(table)?.insert(items)
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        self.get(table).map(|table| table.compression())
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}
