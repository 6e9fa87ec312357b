//! The reasons why requests wait, and the time that they wait for each.

use super::support::{options, queue};
use super::waiting::{one, sample};
use reverie_core::sample::SampleRequest;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{BlockReason, SampleReason, TableOptions};
use std::time::Duration;

#[test]
fn why_names_the_numbers_of_both_sides() {
    let limiter = Limiter::new(2.0, 3, 0.0, 10.0).unwrap();
    let (_tables, table, mut rows, clock) = one(TableOptions { limiter, ..options("replay", 10) });
    table.insert(rows.inserts(&[1.0, 2.0])).unwrap();
    let _ticket = table.sample(sample(4)).unwrap();
    clock.advance(Duration::from_secs(3));
    let why = table.why();
    assert_eq!((why.samples.len(), why.samples[0].wanted, why.samples[0].done), (1, 4, 0));
    assert_eq!(why.samples[0].since, Duration::from_secs(3));
    assert!(matches!(why.sample_reason, Some(SampleReason::Limiter(_))));
    assert!(!why.stuck);
    let text = why.to_string();
    for part in ["replay", "2 of 10 items", "3.0 s", "min_size_to_sample"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn why_reports_when_both_sides_are_held_back_for_ever() {
    let limiter = Limiter::new(1.5, 1, 0.0, 1.6).unwrap();
    let (_tables, table, mut rows, _) = one(TableOptions { limiter, ..options("t", 10) });
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert!(!table.why().stuck);
    table.sample(sample(1)).unwrap();
    assert!(!table.can_insert(1) && !table.can_sample(1));
    assert!(table.why().stuck);
    assert!(table.why().to_string().contains("for ever"), "{}", table.why());
}

#[test]
fn blocked_time_is_the_time_that_some_request_waited() {
    let (_tables, table, mut rows, clock) = one(queue("q", 1));
    let mut ticket = table.sample(sample(1)).unwrap();
    clock.advance(Duration::from_secs(2));
    assert_eq!(table.info().times.samples_blocked, Duration::from_secs(2), "while it waits");
    table.insert(rows.inserts(&[1.0])).unwrap();
    clock.advance(Duration::from_secs(5));
    assert!(ticket.poll().is_some());
    assert_eq!(table.info().times.samples_blocked, Duration::from_secs(2), "and after");
    assert_eq!(table.info().times.inserts_blocked, Duration::ZERO);
}

#[test]
fn blocked_time_is_counted_for_the_reason_that_held_the_first_request_back_when_it_was_tried() {
    let limiter = Limiter::new(1.0, 1, -100.0, 1.0).unwrap();
    let (_tables, table, mut rows, clock) =
        one(TableOptions { limiter, sampler: SelectorOptions::Uniform, ..options("t", 10) });
    let seconds = |insert: BlockReason, sample: BlockReason| {
        let (inserts, samples) = table.blocked();
        (inserts.of(insert).as_secs(), samples.of(sample).as_secs())
    };
    let four = SampleRequest { num_samples: 4, without_replacement: true, ..Default::default() };
    let draws = table.sample(four).unwrap();
    clock.advance(Duration::from_secs(2));
    assert_eq!(seconds(BlockReason::Limiter, BlockReason::Limiter), (0, 2));
    table.insert(rows.inserts(&[1.0])).unwrap();
    // One item is there: the limiter allows a draw, and four different ones are too many.
    clock.advance(Duration::from_secs(3));
    assert_eq!(seconds(BlockReason::Limiter, BlockReason::Items), (0, 3));
    assert_eq!(seconds(BlockReason::Turn, BlockReason::Limiter), (0, 2));
    drop(draws);
    let waiting = loop {
        let ticket = table.insert(rows.inserts(&[1.0])).unwrap();
        if !ticket.is_done() {
            break ticket;
        }
    };
    clock.advance(Duration::from_secs(7));
    assert_eq!(seconds(BlockReason::Limiter, BlockReason::Items), (7, 3));
    drop(table.sample(sample(1)).unwrap());
    assert!(waiting.is_done());
    clock.advance(Duration::from_secs(5));
    let (inserts, samples) = table.blocked();
    assert_eq!((inserts.total().as_secs(), samples.total().as_secs()), (7, 5));
    let times = table.info().times;
    assert_eq!((times.inserts_blocked, times.samples_blocked), (inserts.total(), samples.total()));
}
