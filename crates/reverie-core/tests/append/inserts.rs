//! Inserts that take several requests: what is in the tables when one of them is refused, late, or of unknown outcome.

use super::support::{self, Rows, options, queue, queue_limiter, tables};
use reverie_core::append::{InsertParts, MultiTableInsert, Sink, SplitInsert};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::error::{Error, Result};
use reverie_core::item::Item;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::Signature;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Keys, Priority, TableOptions, Tables, Ticket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const ONE: Priority = Priority::Value(1.0);

fn size(tables: &Tables, table: &str) -> u64 {
    tables.get(table).unwrap().info().size
}

/// A queue "full" with one place, which is taken; and the tables "a" and "b", which never wait.
fn with_a_full_table() -> (Arc<Tables>, Rows) {
    let (tables, _) = tables(vec![options("a", 10), queue("full", 1), options("b", 10)]);
    let mut rows = Rows::new(&tables);
    let first = tables.insert("full", rows.inserts(&[0.0])).unwrap().poll();
    assert!(matches!(first, Some(Ok(keys)) if keys.len() == 1));
    (tables, rows)
}

/// Tables behind a connection that can break: from the insert with this number on, it fails.
struct BreakingTables {
    tables: Arc<Tables>,
    inserts: AtomicUsize,
    from: usize,
    /// The error, if it is not that of an unknown outcome.
    error: Option<Error>,
    sizes: Mutex<Vec<usize>>,
}

impl BreakingTables {
    fn from(tables: &Arc<Tables>, from: usize) -> Self {
        Self { tables: Arc::clone(tables), inserts: AtomicUsize::new(0), from, error: None, sizes: Mutex::default() }
    }
}

impl Sink for BreakingTables {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.sizes.lock().unwrap().push(items.len());
        match self.inserts.fetch_add(1, Ordering::Relaxed) {
            number if number >= self.from => {
                let unknown = Error::UnknownOutcome { number: number as u64 };
                Ok(Ticket::done(Err(self.error.clone().unwrap_or(unknown))))
            }
            _ => self.tables.insert(table, items),
        }
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.tables.check(table, items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.tables.check_priority(table, priority)
    }

    fn signature(&self, table: &str) -> Result<Option<Signature>> {
        self.tables.signature(table)
    }

    fn wait_reason(&self, table: &str) -> Ticket<String> {
        self.tables.wait_reason(table)
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        self.tables.compression(table)
    }

    fn meter(&self) -> &Arc<Meter> {
        self.tables.meter()
    }
}

#[test]
fn an_item_that_the_second_table_refuses_goes_into_none() {
    let sampler = SelectorOptions::Prioritized { exponent: 1.0 };
    let (tables, _) = tables(vec![options("a", 10), TableOptions { sampler, ..options("b", 10) }]);
    let mut rows = Rows::new(&tables);
    let targets = [("a", ONE), ("b", Priority::Value(-1.0))];
    let refused = MultiTableInsert::send(&*tables, rows.item(1.0), &targets);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    assert_eq!((size(&tables, "a"), size(&tables, "b")), (0, 0));
    let unknown = MultiTableInsert::check_tables(&*tables, ["a", "c"]);
    assert!(matches!(unknown, Err(Error::UnknownTable { name, .. }) if name == "c"));
    assert!(MultiTableInsert::send(&*tables, rows.item(1.0), &[("a", ONE), ("b", ONE)]).unwrap().is_none());
    assert_eq!((size(&tables, "a"), size(&tables, "b")), (1, 1));
}

#[test]
fn a_cancelled_insert_into_several_tables_names_those_that_took_the_item_and_no_other_takes_it_later() {
    let (tables, mut rows) = with_a_full_table();
    let targets = [("a", ONE), ("full", ONE), ("b", ONE)];
    let mut insert = MultiTableInsert::send(&*tables, rows.item(1.0), &targets).unwrap().expect("a table is full");
    assert!(insert.wait(NOW).is_none());
    assert_eq!(insert.waits_for(), Some("full"));
    assert_eq!(insert.cancel(NOW), Ok(()));
    assert_eq!((insert.taken(), insert.waits_for()), (&["a", "b"][..], None));
    tables.get("full").unwrap().reset().unwrap();
    assert_eq!(size(&tables, "full"), 0);
    assert_eq!(insert.cancel(NOW), Ok(()), "a second withdrawal does nothing");
}

#[test]
fn an_insert_into_several_tables_ends_when_the_last_of_them_takes_the_item() {
    let (tables, mut rows) = with_a_full_table();
    let targets = [("full", ONE), ("b", ONE)];
    let mut insert = MultiTableInsert::send(&*tables, rows.item(1.0), &targets).unwrap().expect("a table is full");
    assert!(insert.wait(NOW).is_none());
    let draw = SampleRequest { num_samples: 1, ..Default::default() };
    drop(tables.get("full").unwrap().sample(draw).unwrap().poll());
    assert_eq!(insert.wait(NOW), Some(Ok(())));
    assert_eq!((insert.taken(), size(&tables, "full")), (&["b", "full"][..], 1));
}

#[test]
fn an_insert_that_fails_in_a_later_table_is_withdrawn_from_the_tables_where_it_waits() {
    let (tables, mut rows) = with_a_full_table();
    let broken = BreakingTables::from(&tables, 1);
    let failed = MultiTableInsert::send(&broken, rows.item(1.0), &[("full", ONE), ("b", ONE)]);
    assert!(matches!(failed, Err(Error::UnknownOutcome { .. })));
    let info = tables.get("full").unwrap().info();
    assert_eq!((info.size, info.pending_inserts), (1, 0));
}

#[test]
fn items_are_sent_in_parts_of_at_most_so_many_and_their_keys_are_in_order() {
    let (tables, _) = tables(vec![options("a", 10)]);
    let mut rows = Rows::new(&tables);
    let sink = BreakingTables::from(&tables, usize::MAX);
    let mut insert = SplitInsert::send(&sink, "a", rows.inserts(&[0.0, 1.0, 2.0, 3.0, 4.0]), 2).unwrap();
    assert_eq!(*sink.sizes.lock().unwrap(), [2], "the next part waits for the first");
    assert_eq!(insert.wait(NOW), Some(Ok(())));
    assert!(insert.is_complete());
    assert_eq!(*sink.sizes.lock().unwrap(), [2, 2, 1]);
    let keys: Vec<i64> = insert.keys().iter().map(|key| key.get()).collect();
    let found = tables.get("a").unwrap().get(&keys).unwrap();
    assert_eq!(found.items.iter().map(support::f64_of).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0]);
    let sizes = |items, most| InsertParts::of(items, most).map(|part| part.len()).collect::<Vec<_>>();
    assert_eq!(sizes(rows.inserts(&[0.0, 1.0]), usize::MAX), [2]);
    assert_eq!(sizes(rows.inserts(&[0.0, 1.0, 2.0, 3.0]), 2), [2, 2]);
    assert_eq!(InsertParts::of(rows.inserts(&[0.0, 1.0, 2.0]), 2).len(), 2);
    assert_eq!(sizes(Inserts::new(), 2), [0; 0]);
}

#[test]
fn a_withdrawal_in_the_second_part_reports_the_keys_of_all_items_that_are_in() {
    let limiter = queue_limiter(3);
    let (tables, _) = tables(vec![TableOptions { limiter, ..options("a", 10) }]);
    let mut rows = Rows::new(&tables);
    let sink = BreakingTables::from(&tables, usize::MAX);
    let mut insert = SplitInsert::send(&sink, "a", rows.inserts(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), 2).unwrap();
    assert!(insert.wait(NOW).is_none());
    assert_eq!(insert.keys().len(), 2, "those of the first part");
    assert_eq!(insert.cancel(NOW), Ok(()));
    assert_eq!((insert.keys().len(), insert.is_complete()), (3, false), "one item of the second part, too");
    assert_eq!((size(&tables, "a"), sink.sizes.lock().unwrap().len()), (3, 2), "the third part was never sent");
}

#[test]
fn an_unknown_outcome_of_the_second_part_leaves_the_keys_of_the_first() {
    let (tables, _) = tables(vec![options("a", 10)]);
    let mut rows = Rows::new(&tables);
    let sink = BreakingTables::from(&tables, 1);
    let mut insert = SplitInsert::send(&sink, "a", rows.inserts(&[0.0, 1.0, 2.0, 3.0, 4.0]), 2).unwrap();
    assert_eq!(insert.wait(NOW), Some(Err(Error::UnknownOutcome { number: 1 })));
    assert_eq!((insert.keys().len(), insert.is_complete()), (2, false));
    assert_eq!(sink.sizes.lock().unwrap().len(), 2, "nothing is sent after an error");
}

#[test]
fn a_refusal_that_names_what_is_in_has_its_keys_and_those_of_earlier_parts() {
    let (tables, _) = tables(vec![options("a", 10)]);
    let mut rows = Rows::new(&tables);
    let first = tables.insert("a", rows.inserts(&[0.0])).unwrap().poll().unwrap().unwrap();
    let refusal = || Box::new(Error::InvalidArgument("no more".to_owned()));
    let error = Error::PartlyInserted { keys: first.clone(), error: refusal() };
    let sink = BreakingTables { error: Some(error), ..BreakingTables::from(&tables, 1) };
    let mut insert = SplitInsert::send(&sink, "a", rows.inserts(&[0.0, 1.0, 2.0, 3.0]), 2).unwrap();
    let refused = insert.wait(NOW).unwrap().unwrap_err();
    let keys = insert.keys().clone();
    assert_eq!(refused, Error::PartlyInserted { keys: keys.clone(), error: refusal() });
    assert!(refused.to_string().contains("the table keeps 3 items of the insert"), "{refused}");
    assert_eq!((keys.len(), keys.last(), insert.is_complete()), (3, first.first(), false));
}
