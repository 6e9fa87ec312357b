//! The shared table: which requests wait, and which go on.

use super::support::{Rows, f64_of, options, queue, queue_limiter, tables};
use reverie_core::append::Sink;
use reverie_core::clock::Clock;
use reverie_core::error::Error;
use reverie_core::sample::{SampleRequest, Source};
use reverie_core::spec::{ColumnSignature, DType, Signature, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Priority, SampleReason, SharedTable, TableOptions, Tables, Updates};
use std::sync::Arc;

pub(super) fn sample(n: usize) -> SampleRequest {
    SampleRequest { num_samples: n, ..Default::default() }
}

pub(super) fn one(
    options: TableOptions,
) -> (Arc<Tables>, Arc<SharedTable>, Rows, Arc<reverie_core::clock::ManualClock>) {
    let (tables, clock) = tables(vec![options]);
    let table = Arc::clone(tables.iter().next().unwrap());
    let rows = Rows::new(&tables);
    (tables, table, rows, clock)
}

#[test]
fn a_sample_that_waits_is_completed_by_the_insert_that_makes_it_possible() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    let mut ticket = table.sample(sample(2)).unwrap();
    assert!(ticket.poll().is_none());
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert!(!ticket.is_done());
    table.insert(rows.inserts(&[2.0])).unwrap();
    let draws = ticket.poll().unwrap().unwrap();
    assert_eq!(draws.items.iter().map(f64_of).collect::<Vec<_>>(), [1.0, 2.0]);
    assert!(ticket.poll().is_none(), "an outcome is given once");
}

#[test]
fn a_request_for_more_draws_than_memory_could_hold_waits_as_any_other() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    let ticket = table.sample(sample(usize::MAX)).unwrap();
    let other = table.sample(sample(usize::MAX)).unwrap();
    assert_eq!(table.info().pending_samples, u64::MAX);
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert_eq!(ticket.cancel().unwrap().len(), 1);
    assert!(!table.can_sample(u64::MAX) && !table.can_insert(u64::MAX));
    drop(other);
}

#[test]
fn waiting_samples_are_served_in_order_of_arrival() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    let mut tickets: Vec<_> = (0..3).map(|_| table.sample(sample(1)).unwrap()).collect();
    for (index, value) in [5.0, 6.0, 7.0].into_iter().enumerate() {
        table.insert(rows.inserts(&[value])).unwrap();
        let done: Vec<bool> = tickets.iter().map(|ticket| ticket.is_done()).collect();
        assert_eq!(done, (0..3).map(|other| other <= index).collect::<Vec<_>>());
    }
    let values: Vec<f64> = tickets.iter_mut().map(|ticket| f64_of(&ticket.poll().unwrap().unwrap().items[0])).collect();
    assert_eq!(values, [5.0, 6.0, 7.0]);
}

#[test]
fn a_group_goes_in_as_far_as_the_limiter_allows_and_the_rest_follows_sample_by_sample() {
    let (_tables, table, mut rows, _) = one(queue("q", 2));
    let mut ticket = table.insert(rows.inserts(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    assert_eq!(table.info().size, 2);
    assert_eq!(table.info().pending_inserts, 2);
    let first = table.sample(sample(1)).unwrap().poll().unwrap().unwrap();
    assert_eq!(f64_of(&first.items[0]), 1.0);
    assert_eq!((table.info().size, table.info().pending_inserts), (2, 1));
    table.sample(sample(1)).unwrap();
    assert_eq!(ticket.poll().unwrap().unwrap().len(), 4);
}

#[test]
fn a_sampler_and_an_insert_that_wait_for_one_another_both_go_on() {
    // Neither queue may stand behind the other's head.
    let limiter = Limiter::new(1.0, 1, -1.0, 1.0).unwrap();
    let (_tables, table, mut rows, _) = one(TableOptions { limiter, ..options("t", 10) });
    let mut insert = table.insert(rows.inserts(&[1.0, 2.0, 3.0, 4.0, 5.0])).unwrap();
    assert!(!insert.is_done());
    let mut draws = table.sample(sample(6)).unwrap();
    assert!(insert.poll().unwrap().is_ok());
    assert_eq!(draws.poll().unwrap().unwrap().len(), 6);
}

#[test]
fn cancelling_hands_out_the_draws_that_were_made_and_frees_the_place() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    let ticket = table.sample(sample(3)).unwrap();
    table.insert(rows.inserts(&[1.0, 2.0])).unwrap();
    let partial = ticket.cancel().unwrap();
    assert_eq!(partial.items.iter().map(f64_of).collect::<Vec<_>>(), [1.0, 2.0]);
    assert_eq!(table.info().pending_samples, 0);
    table.insert(rows.inserts(&[3.0])).unwrap();
    assert_eq!(table.info().size, 1);
}

#[test]
fn cancelling_an_insert_names_the_keys_that_are_in() {
    let (_tables, table, mut rows, _) = one(queue("q", 1));
    let ticket = table.insert(rows.inserts(&[1.0, 2.0])).unwrap();
    let keys = ticket.cancel().unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(f64_of(&table.get(&[keys[0].get()]).unwrap().items[0]), 1.0);
    assert_eq!(table.info().pending_inserts, 0);
}

#[test]
fn an_insert_goes_on_when_its_ticket_is_not_polled() {
    let (_tables, table, mut rows, _) = one(queue("q", 1));
    drop(table.insert(rows.inserts(&[1.0, 2.0])).unwrap());
    table.sample(sample(1)).unwrap();
    assert_eq!(f64_of(&table.sample(sample(1)).unwrap().poll().unwrap().unwrap().items[0]), 2.0);
}

#[test]
fn a_dropped_sample_ticket_withdraws_its_request() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    drop(table.sample(sample(1)).unwrap());
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert_eq!(table.info().size, 1);
}

#[test]
fn closing_ends_waiting_requests_and_refuses_later_ones() {
    let closed = |name: &str| Error::Closed { name: name.to_owned() };
    let (tables, _) = tables(vec![queue("inserts", 1), queue("samples", 1)]);
    let mut rows = Rows::new(&tables);
    let (inserts, samples) = (tables.get("inserts").unwrap(), tables.get("samples").unwrap());
    let mut insert = inserts.insert(rows.inserts(&[1.0, 2.0])).unwrap();
    let mut draws = samples.sample(sample(1)).unwrap();
    tables.close();
    tables.close();
    let Err(Error::PartlyInserted { keys, error }) = insert.poll().unwrap() else { panic!("a part of it is in") };
    assert_eq!(*error, closed("inserts"));
    assert!(keys.len() == 1 && inserts.info().size == 1);
    assert_eq!(draws.poll().unwrap().unwrap_err(), closed("samples"));
    assert_eq!(samples.sample(sample(1)).err(), Some(closed("samples")));
    assert_eq!(inserts.insert(rows.inserts(&[3.0])).err(), Some(closed("inserts")));
    assert_eq!(inserts.update(&[], &[], None).err(), Some(closed("inserts")));
    // The limiter alone would let a draw go on.
    assert!(inserts.info().size == 1 && !inserts.can_sample(1) && !samples.can_insert(1));
    assert!(inserts.why().closed && inserts.why().to_string().contains("every insert and sample is refused"));
}

#[test]
fn a_smaller_size_evicts_and_a_larger_limit_frees_waiting_requests() {
    let (_tables, table, mut rows, _) = one(queue("q", 2));
    let mut ticket = table.insert(rows.inserts(&[1.0, 2.0, 3.0])).unwrap();
    assert!(!ticket.is_done());
    let wider = Change { max_size: Some(5), limiter: Some(queue_limiter(5)), ..Change::default() };
    table.configure(wider).unwrap();
    assert_eq!(ticket.poll().unwrap().unwrap().len(), 3);
    table.configure(Change { max_size: Some(1), ..Change::default() }).unwrap();
    assert_eq!(f64_of(&table.sample(sample(1)).unwrap().poll().unwrap().unwrap().items[0]), 3.0);
    assert!(table.configure(Change { max_size: Some(0), ..Change::default() }).is_err());
}

#[test]
fn priorities_that_are_not_numbers_refuse_the_whole_call() {
    let prioritized = SelectorOptions::Prioritized { exponent: 1.0 };
    let (_tables, table, mut rows, _) = one(TableOptions { sampler: prioritized, ..options("t", 10) });
    let keys: Vec<i64> =
        table.insert(rows.inserts(&[1.0, 2.0])).unwrap().poll().unwrap().unwrap().iter().map(|k| k.get()).collect();
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(table.update(&keys, &[5.0, bad], None).is_err());
        assert_eq!(table.get(&keys).unwrap().priorities, [1.0, 1.0], "nothing was changed");
        let items = [rows.item(3.0), rows.item(4.0)].into_iter().zip([Priority::Value(1.0), Priority::Value(bad)]);
        assert!(table.insert(items.collect()).is_err());
        assert!(
            table.mutate(&Updates { keys: &keys[..1], priorities: &[bad], ..Updates::default() }, &keys[1..]).is_err()
        );
        assert_eq!(table.info().size, 2, "nothing went in or out");
    }
    assert!(table.update(&keys, &[1.0], None).is_err(), "one priority for two keys");
    assert!(table.mutate(&Updates { keys: &keys, priorities: &[1.0], ..Updates::default() }, &[]).is_err(), "the same");
}

#[test]
fn max_is_the_largest_priority_at_the_moment_the_item_goes_in() {
    let prioritized = SelectorOptions::Prioritized { exponent: 0.6 };
    let (_tables, table, mut rows, _) = one(TableOptions { sampler: prioritized, ..options("t", 10) });
    let mut insert = |value, priority| {
        let item = rows.item(value);
        let keys = table.insert(smallvec::smallvec![(item, priority)]).unwrap().poll().unwrap().unwrap();
        table.get(&[keys[0].get()]).unwrap().priorities[0]
    };
    assert_eq!(insert(1.0, Priority::Max), 1.0, "in an empty table");
    assert_eq!(insert(2.0, Priority::Value(7.0)), 7.0);
    assert_eq!(insert(3.0, Priority::Max), 7.0);
}

#[test]
fn the_default_priority_is_the_largest_where_items_are_drawn_in_proportion_to_it_and_else_one() {
    let sampled_by = |sampler: SelectorOptions| {
        let (_tables, table, mut rows, _) = one(TableOptions { sampler, ..options("t", 10) });
        let mut insert = |value, priority| {
            let keys =
                table.insert(smallvec::smallvec![(rows.item(value), priority)]).unwrap().poll().unwrap().unwrap();
            table.get(&[keys[0].get()]).unwrap().priorities[0]
        };
        let first = insert(1.0, Priority::Default);
        insert(2.0, Priority::Value(7.0));
        (first, insert(3.0, Priority::Default))
    };
    let exponent = 0.6;
    assert_eq!(sampled_by(SelectorOptions::Prioritized { exponent }), (1.0, 7.0));
    assert_eq!(sampled_by(SelectorOptions::Stratified { exponent }), (1.0, 7.0));
    assert_eq!(sampled_by(SelectorOptions::Uniform), (1.0, 1.0));
    assert_eq!(sampled_by(SelectorOptions::MaxHeap), (1.0, 1.0));
}

#[test]
fn a_deleted_item_of_a_queue_gives_its_place_to_an_insert_that_waits() {
    let (_tables, table, mut rows, _) = one(queue("q", 2));
    let mut insert = |value| table.insert(smallvec::smallvec![(rows.item(value), Priority::Value(1.0))]).unwrap();
    let keys = [1.0, 2.0].map(|value| insert(value).poll().unwrap().unwrap()[0].get());
    let mut waits = insert(3.0);
    assert!(waits.poll().is_none());
    assert_eq!(table.delete_where(Some(&keys[..1]), &[]).unwrap().applied, 1);
    assert!(waits.poll().is_some());
    assert!(insert(4.0).poll().is_none(), "it is full again");
    // If an item may be drawn more often, the limiter counts only draws.
    let (_tables, table, mut rows, _) = one(TableOptions { max_times_sampled: 2, ..queue("q", 2) });
    let mut insert = |value| table.insert(smallvec::smallvec![(rows.item(value), Priority::Value(1.0))]).unwrap();
    let keys = [1.0, 2.0].map(|value| insert(value).poll().unwrap().unwrap()[0].get());
    table.delete_where(Some(&keys), &[]).unwrap();
    assert_eq!(table.info().counters.samples, 0);
}

#[test]
fn keys_of_a_table_before_its_reset_are_stale() {
    let (_tables, table, mut rows, _) = one(options("t", 10));
    let key = table.insert(rows.inserts(&[1.0])).unwrap().poll().unwrap().unwrap()[0].get();
    table.reset().unwrap();
    table.insert(rows.inserts(&[2.0])).unwrap();
    assert_eq!(table.update(&[key], &[9.0], None).unwrap().stale, 1);
    assert!(matches!(table.get(&[key]), Err(Error::UnknownKey { .. })));
    assert_eq!(table.info().stats.stale_updates, 1);
}

#[test]
fn a_cut_stays_as_it_was_while_the_table_goes_on() {
    let (_tables, table, mut rows, _) = one(options("t", 300));
    let values: Vec<f64> = (0..300).map(f64::from).collect();
    let keys = table.insert(rows.inserts(&values)).unwrap().poll().unwrap().unwrap();
    let cut = table.cut();
    table.update(&[keys[0].get()], &[50.0], None).unwrap();
    table.delete(&[keys[299].get()]).unwrap();
    table.insert(rows.inserts(&[1000.0])).unwrap();
    let kept: Vec<(f64, f64)> =
        cut.iter().map(|(_, slot, _)| (f64_of(slot.item.as_ref().unwrap()), slot.priority())).collect();
    assert_eq!(kept, values.iter().map(|value| (*value, 1.0)).collect::<Vec<_>>());
    assert_eq!(table.get(&[keys[0].get()]).unwrap().priorities, [50.0]);
}

#[test]
fn without_replacement_a_batch_has_no_item_twice_and_waits_for_more_items() {
    let (_tables, table, mut rows, _) = one(TableOptions { sampler: SelectorOptions::Uniform, ..options("t", 10) });
    table.insert(rows.inserts(&[1.0, 2.0, 3.0])).unwrap();
    let mut ticket =
        table.sample(SampleRequest { num_samples: 4, without_replacement: true, ..Default::default() }).unwrap();
    assert!(!ticket.is_done());
    assert_eq!(table.why().sample_reason, Some(SampleReason::TooFewItems { size: 3 }));
    table.insert(rows.inserts(&[4.0])).unwrap();
    let draws = ticket.poll().unwrap().unwrap();
    let mut values: Vec<f64> = draws.items.iter().map(f64_of).collect();
    values.sort_by(f64::total_cmp);
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    assert!(draws.probabilities.iter().all(|p| (0.25 - p).abs() < 0.1));
}

#[test]
fn an_item_that_breaks_the_signature_is_refused_with_its_path_and_both_types() {
    let column = ColumnSignature { path: String::new(), dtype: DType::Float32, shape: vec![] };
    let signature = Signature { columns: vec![column], structure: Structure::Leaf };
    let (_tables, table, mut rows, _) = one(TableOptions { signature: Some(signature), ..options("t", 10) });
    let error = table.insert(rows.inserts(&[1.0])).err().unwrap();
    assert!(
        matches!(&error, Error::Signature { got, want, .. } if got.contains("float64") && want.contains("float32"))
    );
}

#[test]
fn set_ups_that_can_never_work_are_refused_at_construction() {
    let clock: Arc<dyn Clock> = Arc::new(reverie_core::clock::ManualClock::default());
    let refused =
        |options: Vec<TableOptions>| Tables::new(options, None, &clock, 1).err().expect("refused").to_string();
    assert!(refused(vec![]).contains("at least one table"));
    assert!(refused(vec![options("a", 1), options("a", 1)]).contains("'a'"));
    assert!(refused(vec![options("", 1)]).contains("name"));
    assert!(refused(vec![options("a", 0)]).contains("max_size"));
    let stratified = SelectorOptions::Stratified { exponent: 1.0 };
    assert!(refused(vec![TableOptions { remover: stratified, ..options("a", 1) }]).contains("stratified"));
    assert!(refused(vec![TableOptions { sampler: stratified, ..queue("a", 1) }]).contains("stratified"));
    let text = refused(vec![TableOptions { limiter: Limiter::min_size(11).unwrap(), ..options("a", 10) }]);
    assert!(text.contains("11") && text.contains("10"), "{text}");
}

#[test]
fn an_unknown_table_names_the_known_ones() {
    let (tables, _) = tables(vec![options("replay", 1), options("queue", 1)]);
    let error = Source::sample(&*tables, "reply", sample(1)).err().unwrap();
    assert_eq!(error.to_string(), "there is no table 'reply'; the server has 'replay', 'queue'");
    assert!(tables.compression("nope").is_err());
}

#[test]
fn a_ticket_is_a_future_and_wakes_its_task() {
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    struct WakeCounter(AtomicUsize);
    impl std::task::Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    let count = Arc::new(WakeCounter(AtomicUsize::new(0)));
    let waker = std::task::Waker::from(Arc::clone(&count));
    let mut context = std::task::Context::from_waker(&waker);
    let mut ticket = Box::pin(table.sample(sample(1)).unwrap());
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(ticket.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_seed_fixes_the_draws() {
    let draw = |seed| {
        let uniform = TableOptions { sampler: SelectorOptions::Uniform, sampler_seed: seed, ..options("t", 100) };
        let (_tables, table, mut rows, _) = one(uniform);
        table.insert(rows.inserts(&(0..100).map(f64::from).collect::<Vec<_>>())).unwrap();
        let draws = table.sample(sample(50)).unwrap().poll().unwrap().unwrap();
        draws.items.iter().map(f64_of).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
