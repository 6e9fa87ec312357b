//! The tables of this process as a replay.

use super::support::{self, options, tables};
use reverie_core::error::Error;
use reverie_core::replay::Replay;
use std::sync::mpsc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_checkpoint_is_taken_by_what_was_set_for_it_and_goes_on_without_its_caller() {
    let (tables, _) = tables(vec![options("t", 10)]);
    let refused = tables.checkpoint().poll().unwrap();
    assert!(matches!(refused, Err(Error::InvalidArgument(text)) if text.contains("no checkpointer")));
    let (begin, begun) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel();
    let begun = std::sync::Mutex::new(begun);
    let take = move || {
        begun.lock().unwrap().recv().unwrap();
        end.send(()).unwrap();
        Ok("a/path".to_owned())
    };
    assert!(tables.set_checkpointer(std::sync::Arc::new(take)));
    let mut ticket = tables.checkpoint();
    assert!(ticket.poll().is_none());
    begin.send(()).unwrap();
    let path = (0..100).find_map(|_| ticket.wait(SECOND)).expect("the checkpoint ends");
    assert_eq!(path.unwrap(), ["a/path"]);
    ended.recv().unwrap();
    drop(tables.checkpoint());
    begin.send(()).unwrap();
    ended.recv_timeout(100 * SECOND).expect("it goes on");
}

#[test]
fn a_checkpoint_that_panics_fails_with_the_text_of_the_panic() {
    let (tables, _) = tables(vec![options("t", 10)]);
    tables.set_checkpointer(std::sync::Arc::new(|| panic!("a planted panic")));
    let outcome = (0..100).find_map(|_| tables.checkpoint().wait(SECOND)).expect("it fails");
    assert!(matches!(outcome, Err(Error::Unavailable(text)) if text.contains("a planted panic")));
}

#[test]
fn items_that_can_be_drawn_at_once_are_drawn_and_no_more_are_waited_for() {
    let (tables, _) = tables(vec![support::queue("q", 10)]);
    let mut rows = support::Rows::new(&tables);
    let insert = |rows: &mut support::Rows, values: &[f64]| {
        tables.get("q").unwrap().insert(rows.inserts(values)).unwrap().poll().unwrap().unwrap();
    };
    insert(&mut rows, &[1.0, 2.0]);
    let request = reverie_core::sample::SampleRequest { num_samples: 5, ..Default::default() };
    let now = tables.try_sample("q", request, &Default::default(), None).poll().unwrap().unwrap();
    assert_eq!((now.batches.len(), now.batches[0].len()), (1, 2));
    let now = tables.try_sample("q", request, &Default::default(), None).poll().unwrap().unwrap();
    assert_eq!((now.batches.len(), now.batches[0].is_empty()), (1, true), "one batch, also of nothing");
    // One draw is waited for.
    let mut some = tables.sample_available("q", 5, None);
    assert!(some.poll().is_none());
    insert(&mut rows, &[3.0, 4.0]);
    let some = some.poll().unwrap().unwrap();
    assert_eq!(some.batches.iter().map(reverie_core::sample::DrawnBatch::len).collect::<Vec<_>>(), [1]);
    let cancelled = tables.sample("q", request, &Default::default(), None).cancel().unwrap();
    assert_eq!(cancelled.batches.len(), 1, "what was drawn before the end comes back");
    assert!(tables.sample("q", request, &Default::default(), None).cancel().unwrap().batches.is_empty());
}
