//! Tables within a budget of bytes: which requests wait for bytes, which are refused, which go on when bytes are freed.

use super::support::{Rows, bounded_tables, leaf, options, queue};
use super::waiting::{one, sample};
use reverie_core::append::{ColumnCells, ItemColumn, RowWriter, Sink, StepWriter, WriterOptions};
use reverie_core::chunk::Compression;
use reverie_core::clock::Clock;
use reverie_core::error::Error;
use reverie_core::item;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::{DType, Structure};
use reverie_core::table::{
    BlockReason, Change, InsertReason, Inserts, Keys, Priority, SentInsert, SharedTable, TableOptions, Tables,
};
use std::sync::Arc;
use std::time::Duration;

/// Items that share no chunk count for this much, and a little for the header.
const ITEM: u64 = 10_000;

struct BigRowWriter(RowWriter);

impl BigRowWriter {
    fn new(tables: &Arc<Tables>) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        Self(RowWriter::new(sink, Compression::None, false))
    }

    fn items(&mut self, n: usize) -> Inserts {
        let bytes = vec![7_u8; ITEM as usize];
        let cells = [ColumnCells { itemsize: 1, bytes: &bytes }];
        let schema = leaf(DType::UInt8, &[ITEM as usize]);
        (0..n).map(|_| (self.0.append(&schema, &cells, 1).unwrap().remove(0), Priority::Value(1.0))).collect()
    }
}

/// Room for so many items.
fn budget(n: u64) -> Option<u64> {
    Some(n * ITEM + ITEM / 2)
}

fn take(table: &Arc<SharedTable>, n: usize) {
    drop(table.sample(SampleRequest { num_samples: n, ..SampleRequest::default() }).unwrap().poll().unwrap().unwrap());
}

fn exhausted(error: Option<Error>) -> bool {
    // Also if a part of the insert is in.
    let error = if let Some(Error::PartlyInserted { error, .. }) = error { Some(*error) } else { error };
    matches!(error, Some(Error::ResourceExhausted { .. }))
}

#[test]
fn an_insert_goes_on_while_a_reader_still_holds_what_it_consumed() {
    let (tables, _) = bounded_tables(vec![queue("q", 100)], budget(3));
    let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
    assert!(q.insert(big.items(3)).unwrap().is_done());
    let mut waiting = q.insert(big.items(1)).unwrap();
    assert!(!waiting.is_done());
    let request = SampleRequest { num_samples: 3, ..SampleRequest::default() };
    let draws = q.sample(request).unwrap().poll().unwrap().unwrap();
    assert!(waiting.poll().unwrap().is_ok(), "the budget is for what the tables hold");
    take(q, 1);
    assert!(q.insert(big.items(3)).unwrap().is_done(), "an empty queue takes items, whatever its readers hold");
    drop(draws);
}

#[test]
fn inserts_that_wait_do_not_count_against_one_another() {
    let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], budget(3));
    let (q, t, mut big) = (tables.get("q").unwrap(), tables.get("t").unwrap(), BigRowWriter::new(&tables));
    assert!(q.insert(big.items(2)).unwrap().is_done());
    assert!(t.insert(big.items(1)).unwrap().is_done());
    let mut waiting: Vec<_> = (0..2).map(|_| t.insert(big.items(1)).unwrap()).collect();
    take(q, 1);
    assert_eq!(waiting.iter().map(|ticket| ticket.is_done()).collect::<Vec<_>>(), [true, false]);
    take(q, 1);
    assert!(waiting.iter_mut().all(|ticket| ticket.poll().unwrap().is_ok()));
}

#[test]
fn an_insert_that_waits_is_refused_once_nothing_can_free_bytes_any_more() {
    let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], budget(3));
    let (q, t, mut big) = (tables.get("q").unwrap(), tables.get("t").unwrap(), BigRowWriter::new(&tables));
    assert!(q.insert(big.items(1)).unwrap().is_done());
    let sent = SentInsert { sender: [7; 16], number: 1 };
    let mut group = t.insert_sent(big.items(5), sent, Keys::new()).unwrap();
    assert!(!group.is_done());
    take(q, 1);
    let refused = group.poll().unwrap().unwrap_err();
    assert!(refused.to_string().contains("the table keeps 3 items of the insert"), "{refused}");
    assert_eq!(refused.to_string().matches("3 items").count(), 1, "their number is named once: {refused}");
    let Error::PartlyInserted { keys, error } = refused else { panic!("{refused}") };
    assert!(keys.len() == 3 && exhausted(Some(*error)), "three of five fit, and no consumer takes any");
    assert_eq!(t.arrivals(&sent.sender)[0].1.len(), 3, "what is in is not inserted once more if it is sent again");
    assert_eq!((t.info().size, t.info().pending_inserts), (3, 0));
    // The same where the limits change.
    t.delete(
        &t.cut().iter().map(|(i, s, _)| reverie_core::item::Key::new(0, s.generation, i).get()).collect::<Vec<_>>(),
    )
    .unwrap();
    assert!(q.insert(big.items(1)).unwrap().is_done());
    let mut group = t.insert(big.items(3)).unwrap();
    assert!(!group.is_done());
    q.configure(Change { max_times_sampled: Some(0), ..Change::default() }).unwrap();
    assert!(exhausted(group.poll().unwrap().err()));
}

#[test]
fn a_group_that_does_not_fit_and_that_nothing_makes_room_for_is_refused_as_a_whole() {
    let (tables, _) = bounded_tables(vec![options("t", 5), options("small", 2)], budget(3));
    let (t, mut big) = (tables.get("t").unwrap(), BigRowWriter::new(&tables));
    assert!(exhausted(t.insert(big.items(4)).err()));
    assert_eq!(t.info().size, 0);
    assert!(tables.get("small").unwrap().insert(big.items(4)).unwrap().is_done(), "the first two make room");
}

#[test]
fn an_item_larger_than_the_servers_budget_is_refused_though_a_queue_could_free_bytes() {
    let (tables, _) = bounded_tables(vec![queue("q", 100)], Some(3 * ITEM));
    let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
    assert!(q.insert(big.items(1)).unwrap().is_done());
    let sink: Arc<dyn Sink> = tables.clone();
    let bytes = vec![1_u8; 4 * ITEM as usize];
    let schema = leaf(DType::UInt8, &[bytes.len()]);
    let mut rows = RowWriter::new(sink, Compression::None, false);
    let item = rows.append(&schema, &[ColumnCells { itemsize: 1, bytes: &bytes }], 1).unwrap().remove(0);
    assert!(exhausted(q.insert(smallvec::smallvec![(item, Priority::Value(1.0))]).err()));
}

#[test]
fn time_for_which_an_insert_waits_for_bytes_is_not_counted_for_the_limiter() {
    let (tables, clock) = bounded_tables(vec![queue("q", 4)], budget(2));
    let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
    assert!(q.insert(big.items(2)).unwrap().is_done());
    let waiting = q.insert(big.items(1)).unwrap();
    clock.advance(std::time::Duration::from_secs(3));
    let seconds = || {
        let inserts = q.blocked().0;
        [BlockReason::Bytes, BlockReason::Limiter, BlockReason::Memory, BlockReason::Turn]
            .map(|block| inserts.of(block).as_secs())
    };
    assert_eq!(seconds(), [3, 0, 0, 0]);
    take(q, 1);
    assert!(waiting.is_done());
    clock.advance(std::time::Duration::from_secs(3));
    assert_eq!(seconds(), [3, 0, 0, 0]);
}

#[test]
fn tables_with_budgets_of_their_own_make_room_under_a_servers_budget_of_the_same_size() {
    let own = budget(3);
    let (tables, _) = bounded_tables(vec![TableOptions { max_bytes: own, ..options("t", 100) }], own);
    let (t, mut big) = (tables.get("t").unwrap(), BigRowWriter::new(&tables));
    for _ in 0..10 {
        assert!(t.insert(big.items(1)).unwrap().is_done());
    }
    assert_eq!(t.info().size, 3);
}

#[test]
fn items_that_a_request_holds_are_freed_outside_the_lock_however_it_ends() {
    // Chunks check that themselves, in debug builds.
    let (tables, clock) = bounded_tables(vec![queue("q", 1), queue("r", 1)], None);
    let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
    let withdrawn = q.insert(big.items(4)).unwrap();
    withdrawn.cancel().unwrap();
    let refused = big.items(1).into_iter().map(|(item, _)| (item, Priority::Value(f64::NAN))).collect();
    assert!(q.insert(refused).is_err());
    drop(q.insert(big.items(2)).unwrap());
    let r = tables.get("r").unwrap();
    let mut sample = r.sample(SampleRequest { num_samples: 2, ..SampleRequest::default() }).unwrap();
    assert!(r.insert(big.items(1)).unwrap().is_done());
    clock.advance(std::time::Duration::from_secs(1));
    tables.close();
    assert!(sample.poll().unwrap().is_err());
    assert!(q.insert(big.items(1)).is_err());
    // The one that the closed queue still holds.
    assert_eq!(tables.bytes().0.live_chunks(), 1);
    clock.advance(std::time::Duration::from_secs(1));
    for table in [q, r] {
        let times = table.info().times;
        assert!(times.inserts_blocked.max(times.samples_blocked).as_secs() <= 1, "no request waits at a closed table");
    }
}

#[test]
fn an_item_that_fills_a_servers_budget_to_the_last_byte_goes_in_and_one_byte_more_waits() {
    for (less, goes_in) in [(0, true), (1, false)] {
        let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], None);
        let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
        assert!(q.insert(big.items(2)).unwrap().is_done());
        let full = tables.bytes().0.table_bytes();
        let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], Some(full - less));
        let (q, mut big) = (tables.get("q").unwrap(), BigRowWriter::new(&tables));
        assert!(q.insert(big.items(1)).unwrap().is_done());
        let second = q.insert(big.items(1)).unwrap();
        assert_eq!((second.is_done(), tables.bytes().0.table_bytes() == full), (goes_in, goes_in));
    }
}

/// A writer of chunks that take next to nothing once they are packed.
struct PackingWriter {
    writer: StepWriter,
    column: usize,
    steps: u64,
}

impl PackingWriter {
    fn new(tables: &Arc<Tables>) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        let options = WriterOptions { keep_alive: 1, chunk_length: Some(2), compression: Compression::Zstd };
        let mut writer = StepWriter::new(sink, options).unwrap();
        let column = writer.resolve(&leaf(DType::UInt8, &[ITEM as usize])).unwrap()[0];
        Self { writer, column, steps: 0 }
    }

    /// The item of another step; every second step packs a chunk.
    fn item(&mut self) -> Inserts {
        let cells = [ColumnCells { itemsize: 1, bytes: &[0; ITEM as usize] }];
        self.writer.append(&[self.column], &cells, false).unwrap();
        let column =
            ItemColumn { column: self.column, start: self.steps, cells: item::Cells::range(0, 1), squeeze: true };
        self.steps += 1;
        let item = self.writer.item(&Arc::new(Structure::Leaf), &[column]).unwrap();
        std::iter::once((item, Priority::Value(1.0))).collect()
    }
}

#[test]
fn an_insert_that_waits_for_bytes_goes_on_when_a_chunk_of_another_table_is_packed() {
    let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], Some(4 * ITEM));
    let (q, t, mut big, mut packing) =
        (tables.get("q").unwrap(), tables.get("t").unwrap(), BigRowWriter::new(&tables), PackingWriter::new(&tables));
    // Two cells of room, of which one is written.
    assert!(t.insert(packing.item()).unwrap().is_done());
    assert!(q.insert(big.items(1)).unwrap().is_done());
    let mut waiting = [q.insert(big.items(1)).unwrap(), q.insert(big.items(1)).unwrap()];
    assert!(waiting.iter().all(|ticket| !ticket.is_done()));
    drop(packing.item());
    packing.writer.end_episode(true);
    assert!(waiting.iter_mut().all(|ticket| ticket.poll().is_some_and(|outcome| outcome.is_ok())));
}

#[test]
fn an_insert_that_waits_for_bytes_goes_on_when_its_own_chunk_is_packed() {
    let (tables, _) = bounded_tables(vec![queue("q", 100)], Some(3 * ITEM));
    let (q, mut big, mut packing) = (tables.get("q").unwrap(), BigRowWriter::new(&tables), PackingWriter::new(&tables));
    assert!(q.insert(big.items(2)).unwrap().is_done());
    let mut waiting = q.insert(packing.item()).unwrap();
    assert!(waiting.poll().is_none());
    drop(packing.item());
    packing.writer.end_episode(true);
    assert!(waiting.poll().is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn packing_looks_at_no_table_while_no_insert_waits_for_bytes() {
    #[derive(Default)]
    struct Counting(std::sync::atomic::AtomicUsize);
    impl Clock for Counting {
        fn now(&self) -> std::time::Duration {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::time::Duration::ZERO
        }
    }
    let clock = Arc::new(Counting::default());
    let as_clock: Arc<dyn Clock> = clock.clone();
    let tables = Arc::new(Tables::new(vec![queue("q", 1)], Some(100 * ITEM), &as_clock, 7).unwrap());
    let (q, mut big, mut packing) = (tables.get("q").unwrap(), BigRowWriter::new(&tables), PackingWriter::new(&tables));
    assert!(q.insert(big.items(1)).unwrap().is_done());
    let mut waiting = q.insert(big.items(1)).unwrap();
    let before = clock.0.load(std::sync::atomic::Ordering::Relaxed);
    (0..10).for_each(|_| drop(packing.item()));
    assert!(waiting.wait(std::time::Duration::ZERO).is_none(), "it waits for the limiter");
    assert_eq!(clock.0.load(std::sync::atomic::Ordering::Relaxed), before);
}

#[test]
fn a_chunk_in_two_tables_counts_once_for_the_server() {
    let (tables, _) = bounded_tables(vec![options("a", 100), options("b", 100)], budget(3));
    let (a, b, mut big) = (tables.get("a").unwrap(), tables.get("b").unwrap(), BigRowWriter::new(&tables));
    let items = big.items(3);
    assert!(a.insert(items.clone()).unwrap().is_done());
    assert!(b.insert(items).unwrap().is_done());
    let meter = tables.bytes().0;
    assert_eq!((meter.table_bytes(), meter.live_bytes()), (a.info().bytes, b.info().bytes));
    assert!(exhausted(a.insert(big.items(1)).err()));
    a.reset().unwrap();
    assert_eq!(meter.table_bytes(), b.info().bytes, "the other table still holds them");
    b.reset().unwrap();
    assert_eq!(meter.table_bytes(), 0);
}

#[test]
fn freeing_bytes_at_one_table_lets_the_inserts_of_another_go_on() {
    type FreeingCall = fn(&SharedTable);
    let frees: [(&str, FreeingCall); 3] = [
        ("reset", |table| table.reset().unwrap()),
        ("configure", |table| table.configure(Change { max_size: Some(1), ..Change::default() }).unwrap()),
        ("delete", |table| {
            let keys: Vec<i64> =
                table.cut().iter().map(|(i, s, _)| reverie_core::item::Key::new(0, s.generation, i).get()).collect();
            table.delete(&keys).unwrap();
        }),
    ];
    for (name, free) in frees {
        let (tables, _) = bounded_tables(vec![queue("q", 100), options("a", 100), options("b", 100)], budget(4));
        let [q, a, b] = ["q", "a", "b"].map(|name| tables.get(name).unwrap());
        let mut big = BigRowWriter::new(&tables);
        assert!(q.insert(big.items(1)).unwrap().is_done());
        assert!(a.insert(big.items(3)).unwrap().is_done());
        let mut waiting = b.insert(big.items(1)).unwrap();
        assert!(waiting.poll().is_none());
        let reason = b.why().insert_reason;
        assert!(
            matches!(reason, Some(InsertReason::Bytes { held, needed, budget })
            if held > 4 * ITEM && needed > ITEM && held + needed > budget),
            "{reason:?}"
        );
        free(a);
        assert!(waiting.poll().is_some_and(|outcome| outcome.is_ok()), "{name}");
    }
}

#[test]
fn rows_whose_sizes_alternate_leave_no_chunk_half_empty_and_alike_rows_share_larger_ones_again() {
    let (tables, _) = bounded_tables(vec![options("t", 1000)], None);
    let sink: Arc<dyn Sink> = tables.clone();
    let mut writer = RowWriter::new(sink, Compression::None, false);
    let bytes = [7_u8; 64];
    let mut row = |size: usize| {
        let cells = [ColumnCells { itemsize: 1, bytes: &bytes[..size] }];
        writer.append_row(&leaf(DType::UInt8, &[size]), &cells).unwrap()
    };
    let capacity = |item: &item::Item| item.chunks().next().unwrap().layout().capacity();
    let first = [row(8), row(8)];
    assert_eq!(capacity(&first[0]), 64);
    assert_eq!([9, 8, 10].map(|size| capacity(&row(size))), [2, 1, 1], "two rows were alike, then one");
    assert_eq!(capacity(&row(8)), 1);
    let alike: Vec<_> = (0..63).map(|_| capacity(&row(20))).collect();
    let grown: Vec<usize> = [1, 2, 4, 8, 16, 32].iter().flat_map(|rows| vec![*rows; *rows]).collect();
    assert_eq!(alike, grown);
    assert_eq!(capacity(&row(20)), 64);
}

#[test]
fn a_table_evicts_until_its_bytes_are_within_the_budget_and_counts_a_chunk_once() {
    let (tables, table, mut rows, _) = one(TableOptions { max_bytes: Some(6000), ..options("t", 1_000_000) });
    for value in 0..5000 {
        table.insert(rows.inserts(&[f64::from(value)])).unwrap();
        assert!(table.info().bytes <= 6000);
    }
    let info = table.info();
    assert!(info.size > 100 && info.stats.evicted > 4000, "{info:?}");
    rows.close();
    table.reset().unwrap();
    assert_eq!((table.info().bytes, tables.bytes().0.live_bytes()), (0, 0), "all bytes come back");
}

#[test]
fn an_item_larger_than_the_budget_is_refused_with_both_numbers() {
    let (_tables, table, mut rows, _) = one(TableOptions { max_bytes: Some(10), ..options("t", 10) });
    let error = table.insert(rows.inserts(&[1.0])).err().unwrap();
    assert!(matches!(error, Error::ResourceExhausted { budget: 10, needed, .. } if needed > 10), "{error}");
}

#[test]
fn a_full_server_refuses_when_nothing_can_free_bytes() {
    let (tables, _) = bounded_tables(vec![options("t", 100_000)], Some(20_000));
    let mut rows = Rows::new(&tables);
    let table = tables.get("t").unwrap();
    let mut refused = None;
    for value in 0..10_000 {
        if let Err(error) = table.insert(rows.inserts(&[f64::from(value)])) {
            refused = Some(error);
            break;
        }
    }
    let error = refused.expect("the budget holds");
    assert!(matches!(error, Error::ResourceExhausted { budget: 20_000, .. }), "{error}");
    // A table that makes room for its own inserts goes on.
    table.configure(Change { max_size: Some(table.info().size), ..Change::default() }).unwrap();
    assert!(table.insert(rows.inserts(&[1.0])).unwrap().is_done());
}

#[test]
fn inserts_wait_for_bytes_that_a_consumer_of_another_table_frees() {
    let (tables, _) = bounded_tables(vec![queue("q", 100_000), options("t", 100_000)], Some(20_000));
    let (q, t) = (tables.get("q").unwrap(), tables.get("t").unwrap());
    let mut rows = Rows::new(&tables);
    let mut last = None;
    for value in 0..10_000 {
        let ticket = q.insert(rows.inserts(&[f64::from(value)])).unwrap();
        if !ticket.is_done() {
            last = Some(ticket);
            break;
        }
    }
    let mut in_queue = last.expect("the budget holds the queue's writer");
    let mut in_table = t.insert(rows.inserts(&[5.0])).unwrap();
    assert!(!in_table.is_done());
    assert!(matches!(t.why().insert_reason, Some(InsertReason::Bytes { budget: 20_000, .. })), "{}", t.why());
    let size = q.info().size as usize;
    let draws = q.sample(sample(size)).unwrap().poll().unwrap().unwrap();
    drop(draws);
    // The reader released its draws where no table sees it: the request that waits looks again.
    assert!(in_queue.wait(Duration::from_millis(1)).is_some());
    assert!(in_table.wait(Duration::from_millis(1)).is_some());
}
