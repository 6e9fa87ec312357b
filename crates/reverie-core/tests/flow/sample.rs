//! Draws through the seam: batches made ahead from a source that is no table of this process.

use super::support::{Rows, f64_of, queue, tables};
use reverie_core::batch::{BatchOptions, Planner, Ragged};
use reverie_core::error::{Error, Result};
use reverie_core::replay::Batches;
use reverie_core::sample::{ArrayMemory, Draws, GatheredBatch, Prefetcher, SampleRequest, Schedule, Source};
use reverie_core::table::{Tables, Ticket};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Bytes(Vec<MaybeUninit<u8>>);

impl ArrayMemory for Bytes {
    fn bytes(&mut self, bytes: usize) -> &mut [MaybeUninit<u8>] {
        &mut self.0[..bytes]
    }
}

fn allocate(bytes: usize) -> Option<Box<dyn ArrayMemory>> {
    Some(Box::new(Bytes(vec![MaybeUninit::new(0); bytes])))
}

/// A source as a network client would be one: it answers from elsewhere, and can lose its other end.
struct Remote {
    tables: Arc<Tables>,
    requests: Mutex<Vec<(String, usize)>>,
    answers_left: AtomicUsize,
}

impl Remote {
    fn new(tables: &Arc<Tables>, answers: usize) -> Arc<Self> {
        let (tables, answers_left) = (Arc::clone(tables), AtomicUsize::new(answers));
        Arc::new(Self { tables, requests: Mutex::default(), answers_left })
    }
}

impl Source for Remote {
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>> {
        self.requests.lock().unwrap().push((table.to_owned(), request.num_samples));
        if self.answers_left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
            return Err(Error::Closed { name: table.to_owned() });
        }
        self.tables.sample(table, request)
    }
}

fn prefetcher(source: &Arc<Remote>, parts: &[(&str, usize)], max_samples: Option<usize>) -> Prefetcher {
    let parts = parts.iter().map(|(table, count)| ((*table).to_owned(), *count)).collect();
    let schedule = Schedule {
        parts,
        mixture: None,
        without_replacement: false,
        windows: None,
        max_samples,
        ahead: 2,
        budget: None,
    };
    let planner = Planner::new(&BatchOptions { ragged: Ragged::Refuse, columns: None });
    Prefetcher::new(Arc::clone(source) as Arc<dyn Source>, schedule, planner, allocate).unwrap()
}

fn next_unacknowledged(prefetcher: &Prefetcher) -> Option<Result<GatheredBatch>> {
    (0..500).find_map(|_| prefetcher.next(Duration::from_millis(20))).expect("an answer within ten seconds")
}

/// The next batch, which the program has.
fn next(prefetcher: &Prefetcher) -> Option<Result<GatheredBatch>> {
    let mut next = next_unacknowledged(prefetcher);
    if let Some(Ok(batch)) = &mut next {
        std::mem::take(&mut batch.draws.lease).acknowledge();
    }
    next
}

/// Inserts numbers; their keys.
fn fill(tables: &Arc<Tables>, table: &str, values: &[f64]) -> Vec<i64> {
    let items = Rows::new(tables).inserts(values);
    let keys = tables.get(table).unwrap().insert(items).unwrap().poll().unwrap().unwrap();
    keys.iter().map(|key| key.get()).collect()
}

fn keys(draws: &Draws) -> Vec<i64> {
    draws.keys.iter().map(|key| key.get()).collect()
}

#[test]
fn batches_made_ahead_come_in_order_and_end_with_the_samples_that_were_asked_for() {
    let (tables, _) = tables(vec![queue("q", 10)]);
    let inserted = fill(&tables, "q", &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let source = Remote::new(&tables, 10);
    let prefetcher = prefetcher(&source, &[("q", 2)], Some(5));
    let mut got = Vec::new();
    while let Some(batch) = next(&prefetcher) {
        got.push(keys(&batch.unwrap().draws));
    }
    assert_eq!(got, [&inserted[..2], &inserted[2..4], &inserted[4..]]);
    let requests: Vec<usize> = source.requests.lock().unwrap().iter().map(|(_, count)| *count).collect();
    assert_eq!(requests, [2, 2, 1]);
}

#[test]
fn draws_of_one_table_come_back_where_another_of_the_mixture_fails() {
    let (tables, _) = tables(vec![queue("a", 10), queue("b", 10)]);
    fill(&tables, "a", &[1.0, 2.0]);
    let source = Remote::new(&tables, 1);
    let mut prefetcher = prefetcher(&source, &[("a", 2), ("b", 1)], None);
    assert_eq!(next(&prefetcher).unwrap().err(), Some(Error::Closed { name: "b".to_owned() }));
    assert!(next(&prefetcher).is_none(), "after an error comes the end");
    let (ready, unfinished) = prefetcher.close();
    assert!(ready.is_empty());
    assert_eq!(unfinished.items.iter().map(f64_of).collect::<Vec<_>>(), [1.0, 2.0]);
}

#[test]
fn a_panic_of_the_thread_that_makes_batches_is_an_error_and_not_the_end_of_the_data() {
    struct PanickingSource;
    impl Source for PanickingSource {
        fn sample(&self, _: &str, _: SampleRequest) -> Result<Ticket<Draws>> {
            panic!("a defect")
        }
    }
    let parts = vec![("q".to_owned(), 2)];
    let schedule = Schedule {
        parts,
        mixture: None,
        without_replacement: false,
        windows: None,
        max_samples: None,
        ahead: 2,
        budget: None,
    };
    let planner = Planner::new(&BatchOptions { ragged: Ragged::Refuse, columns: None });
    let prefetcher = Prefetcher::new(Arc::new(PanickingSource), schedule, planner, allocate).unwrap();
    assert!(matches!(next(&prefetcher).unwrap().err(), Some(Error::Unavailable(text)) if text.contains("defect")));
    assert!(next(&prefetcher).is_none(), "after an error comes the end");
}

#[test]
fn closing_hands_out_every_draw_that_was_not_delivered() {
    let (tables, _) = tables(vec![queue("q", 10)]);
    let inserted = fill(&tables, "q", &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let source = Remote::new(&tables, 10);
    let mut prefetcher = prefetcher(&source, &[("q", 2)], None);
    let first = keys(&next(&prefetcher).unwrap().unwrap().draws);
    let (ready, unfinished) = prefetcher.close();
    let mut got = first;
    ready.iter().for_each(|batch| got.extend(keys(&batch.draws)));
    got.extend(keys(&unfinished));
    // Items that were not drawn are still in the table; none is lost, and none is there twice.
    let left = tables.get("q").unwrap().info().size as usize;
    assert_eq!(got, inserted[..5 - left]);
}

#[test]
fn items_that_a_dropped_reader_has_not_acknowledged_are_in_their_table_again_in_order() {
    let (tables, _) = tables(vec![queue("q", 10)]);
    let inserted = fill(&tables, "q", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let table = tables.get("q").unwrap();
    let prefetcher = prefetcher(&Remote::new(&tables, 10), &[("q", 2)], None);
    assert_eq!(keys(&next(&prefetcher).unwrap().unwrap().draws), inserted[..2]);
    let unread = next_unacknowledged(&prefetcher).unwrap().unwrap();
    assert_eq!(keys(&unread.draws), inserted[2..4]);
    // One batch is ready, and the last draw waits for another.
    while table.info().leased < 5 {
        std::thread::yield_now();
    }
    assert_eq!(table.info().size, 0);
    drop((prefetcher, unread));
    // The thread notices within a slice of its wait.
    while table.info().leased > 0 {
        std::thread::yield_now();
    }
    let draws = table.sample(SampleRequest { num_samples: 5, ..SampleRequest::default() }).unwrap().poll();
    assert_eq!(keys(&draws.unwrap().unwrap()), inserted[2..]);
}

#[test]
fn batches_that_were_not_taken_when_their_table_was_closed_are_not_given_and_not_left_over() {
    let (tables, _) = tables(vec![queue("q", 10)]);
    fill(&tables, "q", &[1.0, 2.0, 3.0, 4.0]);
    let table = tables.get("q").unwrap();
    let source = Remote::new(&tables, 10);
    let mut ready = prefetcher(&source, &[("q", 2)], None);
    while table.info().leased < 4 {
        std::thread::yield_now();
    }
    tables.close();
    let next = (0..500).find_map(|_| Batches::next(&mut ready, Duration::from_millis(20))).expect("an answer");
    assert!(matches!(next, Err(Error::Closed { .. })), "the next server may have them from a last checkpoint");
    assert_eq!(Batches::close(&mut ready).len(), 0);
    assert_eq!(table.info().leased, 0);
}
