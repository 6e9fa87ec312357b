//! Memory for pages that are changed while a cut of all tables exists, touched before the cut is made.

use super::shared::SharedTable;
use super::tables::Tables;
use crate::sync::lock;
use crate::table::policy::slots::page::Spares;

/// The most that is set aside, for all tables of a server together: the pages of 2.7 million items.
const MOST_BYTES: u64 = 256 << 20;

/// Spare pages that the tables have until it is dropped; then they return the rest.
pub struct SparePagesGuard<'a> {
    tables: &'a Tables,
    given: u64,
}

impl Tables {
    /// Gives every table as many spare pages as it has pages, or a share of 256 MiB if that is less in total.
    ///
    /// Use it before a cut: while the cut exists, the first change of a page copies it. Takes as long as touching that
    /// memory; no lock is held meanwhile. A table has the spare pages of one caller: if two callers overlap, the second
    /// has all, and further copies go to newly allocated memory.
    pub fn spare(&self) -> SparePagesGuard<'_> {
        self.spare_at_most(MOST_BYTES)
    }

    pub(super) fn spare_at_most(&self, bytes: u64) -> SparePagesGuard<'_> {
        let most = bytes / Spares::PAGE_BYTES;
        let pages: Vec<u64> = self.iter().map(|table| lock(&table.state).table.num_pages()).collect();
        let all: u64 = pages.iter().sum();
        let share = |pages: u64| {
            if all > most { (u128::from(pages) * u128::from(most) / u128::from(all)) as u64 } else { pages }
        };
        let mut given = 0;
        for (table, pages) in self.iter().zip(pages) {
            let spares = Spares::new(share(pages));
            given += spares.pages();
            let before = lock(&table.state).table.exchange_spares(spares);
            drop(before);
        }
        SparePagesGuard { tables: self, given }
    }
}

impl SparePagesGuard<'_> {
    /// The bytes that were set aside.
    pub fn size_bytes(&self) -> u64 {
        self.given * Spares::PAGE_BYTES
    }

    /// Takes back the rest; returns the bytes that were used.
    pub fn take_back(self) -> u64 {
        (self.given.saturating_sub(self.left())) * Spares::PAGE_BYTES
    }

    fn left(&self) -> u64 {
        // Each is dropped after its table's lock is released.
        let left = |table: &SharedTable| lock(&table.state).table.exchange_spares(Spares::default());
        self.tables.iter().map(|table| left(table).pages()).sum()
    }
}

impl Drop for SparePagesGuard<'_> {
    fn drop(&mut self) {
        self.left();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::table::TableOptions;
    use crate::table::limiter::Limiter;
    use crate::table::selector::SelectorOptions;
    use std::sync::Arc;

    fn options(name: &str) -> TableOptions {
        TableOptions {
            name: name.to_owned(),
            sampler: SelectorOptions::Uniform,
            remover: SelectorOptions::Fifo,
            max_size: 100_000,
            limiter: Limiter::min_size(1).unwrap(),
            max_times_sampled: 0,
            signature: None,
            max_bytes: None,
            compression: crate::chunk::Compression::None,
            shard: 0,
            sampler_seed: 1,
            constructed: None,
            remover_seed: 2,
            extensions: Vec::new(),
        }
    }

    fn fill(tables: &Arc<Tables>, name: &str, items: usize) {
        use crate::append::{ColumnCells, RowWriter, Sink};
        use crate::spec::{ColumnSpec, DType, Schema, Structure};
        use crate::table::Priority;
        let sink: Arc<dyn Sink> = tables.clone();
        let mut rows = RowWriter::new(sink, crate::chunk::Compression::None, false);
        let column = ColumnSpec { path: String::new(), dtype: DType::Int8, shape: vec![] };
        let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
        let bytes = vec![0; items];
        let rows = rows.append(&schema, &[ColumnCells { itemsize: 1, bytes: &bytes }], items).unwrap();
        let items = rows.into_iter().map(|item| (item, Priority::Value(1.0))).collect();
        tables.get(name).unwrap().insert(items).unwrap();
    }

    /// The number of pages that the table uses, and of its spare pages.
    fn pages(table: &SharedTable) -> (u64, u64) {
        let table = &mut lock(&table.state).table;
        let spares = table.exchange_spares(Spares::default());
        let found = (table.num_pages(), spares.pages());
        drop(table.exchange_spares(spares));
        found
    }

    #[test]
    fn every_table_has_its_share_until_it_is_taken_back() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let tables = Arc::new(Tables::new(vec![options("a"), options("b"), options("c")], None, &clock, 7).unwrap());
        fill(&tables, "a", 256 * 6);
        fill(&tables, "b", 256 * 2);
        let all = || tables.iter().map(|table| pages(table)).collect::<Vec<_>>();
        let spared = tables.spare();
        assert_eq!(all(), [(6, 6), (2, 2), (0, 0)], "as many as it has");
        assert_eq!(spared.size_bytes(), 8 * Spares::PAGE_BYTES);
        drop(spared);
        assert_eq!(all(), [(6, 0), (2, 0), (0, 0)]);
        let spared = tables.spare_at_most(4 * Spares::PAGE_BYTES);
        assert_eq!(all(), [(6, 3), (2, 1), (0, 0)], "half of what they have is too much already");
        tables.get("a").unwrap().reset().unwrap();
        assert_eq!(all(), [(0, 3), (2, 1), (0, 0)], "nothing is dropped under the lock");
        assert_eq!((spared.size_bytes(), spared.take_back()), (4 * Spares::PAGE_BYTES, 0));
        assert_eq!(all(), [(0, 0), (2, 0), (0, 0)]);
    }
}
