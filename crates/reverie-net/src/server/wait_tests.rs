//! A waiting insert uses no processor time unless it waits for a time limit.

use super::samples::{WaitLimit, wait};
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::clock::Clock;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{InsertOnSample, Inserts, Priority, SharedTable, TableOptions, Tables};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

/// The test's clock; read once for each hold of a table's lock.
struct Counting {
    start: Instant,
    reads: AtomicUsize,
}

impl Clock for Counting {
    fn now(&self) -> Duration {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.start.elapsed()
    }
}

/// A queue that holds one item.
fn queue(name: &str, extensions: Vec<InsertOnSample>) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size: 10,
        limiter: Limiter::new(1.0, 1, 0.0, 1.0).unwrap(),
        max_times_sampled: 1,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions,
    }
}

fn tables(options: Vec<TableOptions>, max_bytes: u64) -> (Arc<Tables>, Arc<Counting>) {
    let clock = Arc::new(Counting { start: Instant::now(), reads: AtomicUsize::new(0) });
    let as_clock: Arc<dyn Clock> = clock.clone();
    (Arc::new(Tables::new(options, Some(max_bytes), &as_clock, 7).unwrap()), clock)
}

fn item(tables: &Arc<Tables>, bytes: usize) -> Inserts {
    let sink: Arc<dyn Sink> = tables.clone();
    let spec = ColumnSpec { path: String::new(), dtype: DType::UInt8, shape: vec![bytes] };
    let schema = Arc::new(Schema { columns: vec![spec], structure: Structure::Leaf });
    let mut writer = RowWriter::new(sink, Compression::None, false);
    let cells = [ColumnCells { itemsize: 1, bytes: &vec![0; bytes] }];
    let item = writer.append(&schema, &cells, 1).unwrap().remove(0);
    std::iter::once((item, Priority::Value(1.0))).collect()
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_waits_under_a_budget_of_bytes_looks_at_its_table_only_when_something_happens_there() {
    let (tables, clock) = tables(vec![queue("q", Vec::new())], 1 << 20);
    let q = tables.get("q").unwrap();
    assert!(q.insert(item(&tables, 8)).unwrap().is_done());
    let ticket = q.insert(item(&tables, 8)).unwrap();
    let (_cancel, cancelled) = oneshot::channel();
    let before = clock.reads.load(Ordering::Relaxed);
    let mut patience = WaitLimit::new(Some(HOUR), cancelled);
    let (mut polls, mut waiting) = (0, Box::pin(wait(q, ticket, &mut patience, true)));
    let outcome = std::future::poll_fn(|context| {
        polls += 1;
        waiting.as_mut().poll(context)
    })
    .await;
    assert!(polls < 10, "woken {polls} times in an hour");
    assert!(outcome.is_err_and(|(keys, _)| keys.is_ok_and(|keys| keys.is_empty())), "withdrawn after an hour");
    let reads = clock.reads.load(Ordering::Relaxed) - before;
    assert!(reads < 10, "{reads} looks in an hour");
}

#[tokio::test(start_paused = true)]
async fn an_insert_behind_a_copy_that_waits_for_bytes_goes_on_when_the_copys_time_is_over() {
    let second = Duration::from_secs(1);
    let copies = vec![InsertOnSample { target: "b".to_owned(), timeout: Some(second) }];
    let (tables, _) = tables(vec![queue("a", copies), queue("b", Vec::new()), queue("c", Vec::new())], 100_000);
    let [a, b, c] = ["a", "b", "c"].map(|name| tables.get(name).unwrap());
    let take = |table: &Arc<SharedTable>| {
        let request = SampleRequest { num_samples: 1, ..Default::default() };
        drop(table.sample(request).unwrap().poll().expect("there is an item").unwrap());
    };
    assert!(b.insert(item(&tables, 8)).unwrap().is_done());
    assert!(a.insert(item(&tables, 60_000)).unwrap().is_done());
    // The copy finds the queue full, and later room in it but no bytes: the next one would find both.
    take(a);
    assert!(c.insert(item(&tables, 90_000)).unwrap().is_done());
    let mut ticket = b.insert(item(&tables, 8)).unwrap();
    take(b);
    assert!(ticket.poll().is_none() && b.drops_late_in() == Some(second), "{}", b.why());
    let (_cancel, cancelled) = oneshot::channel();
    let start = Instant::now();
    let outcome = wait(b, ticket, &mut WaitLimit::new(Some(HOUR), cancelled), true).await;
    assert!(outcome.is_ok_and(|keys| keys.is_ok()));
    assert!(start.elapsed() < 2 * second, "{:?}", start.elapsed());
    assert_eq!(a.info().copies[0].dropped, 1);
}
