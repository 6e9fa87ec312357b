//! Requests that were sent and are not confirmed: how many there are, and waits for fewer.

use super::support::{Rows, options, queue, tables};
use reverie_core::append::{InFlight, Load, Sink};
use reverie_core::error::Error;
use reverie_core::sample::SampleRequest;
use reverie_core::table::SharedTable;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn items_in_flight_are_confirmed_table_by_table_and_wait_for_the_oldest() {
    let (tables, _) = tables(vec![queue("a", 1), queue("b", 1)]);
    let mut rows = Rows::new(&tables);
    let in_flight = InFlight::default();
    for value in 0..4 {
        for name in ["a", "b"] {
            let ticket = tables.insert(name, rows.inserts(&[f64::from(value)])).unwrap();
            in_flight.push(name, ticket, Load { items: 1, bytes: 8 }).unwrap();
        }
    }
    let left = |items: usize, waits_for: &str| (Load { items, bytes: 8 * items as u64 }, Some(waits_for.to_owned()));
    assert_eq!((in_flight.remove_confirmed().unwrap(), in_flight.waits_for()), left(6, "a"));
    let request = SampleRequest { num_samples: 1, ..Default::default() };
    // Tables go on in any order, each in its own.
    (0..2).for_each(|_| drop(tables.get("b").unwrap().sample(request).unwrap()));
    assert_eq!((in_flight.remove_confirmed().unwrap(), in_flight.waits_for()), left(4, "a"));
    (0..3).for_each(|_| drop(tables.get("a").unwrap().sample(request).unwrap()));
    assert_eq!((in_flight.remove_confirmed().unwrap(), in_flight.waits_for()), left(1, "b"));
}

#[test]
fn a_writers_unconfirmed_items_are_counted_until_they_are_in_their_table() {
    let (tables, _) = tables(vec![queue("q", 1), options("t", 10)]);
    let mut rows = Rows::new(&tables);
    let in_flight = InFlight::default();
    let q: &Arc<SharedTable> = tables.get("q").unwrap();
    in_flight.push("t", tables.insert("t", rows.inserts(&[1.0])).unwrap(), Load { items: 1, bytes: 8 }).unwrap();
    assert_eq!(in_flight.load(), Load::NONE, "what is in its table at once was never in flight");
    let two = Load { items: 2, bytes: 16 };
    in_flight.push("q", q.insert(rows.inserts(&[1.0, 2.0])).unwrap(), two).unwrap();
    assert_eq!((in_flight.load(), in_flight.waits_for()), (two, Some("q".to_owned())));
    let request = SampleRequest { num_samples: 1, ..Default::default() };
    q.sample(request).unwrap();
    assert_eq!(in_flight.remove_confirmed(), Ok(Load::NONE));
    in_flight.push("q", q.insert(rows.inserts(&[3.0])).unwrap(), Load { items: 1, bytes: 8 }).unwrap();
    in_flight.push("q", q.insert(rows.inserts(&[4.0])).unwrap(), Load { items: 1, bytes: 8 }).unwrap();
    q.close();
    assert!(matches!(in_flight.remove_confirmed(), Err(Error::Closed { .. })), "the first error, of two");
    assert_eq!(in_flight.remove_confirmed(), Ok(Load::NONE));
}

#[test]
fn a_wait_ends_when_enough_is_confirmed_with_an_error_for_each_request_that_failed() {
    let (tables, _) = tables(vec![queue("a", 1), queue("b", 1)]);
    let mut rows = Rows::new(&tables);
    let in_flight = InFlight::default();
    for (name, count) in [("a", 3), ("b", 3)] {
        for _ in 0..count {
            let ticket = tables.insert(name, rows.inserts(&[1.0])).unwrap();
            in_flight.push(name, ticket, Load { items: 1, bytes: 8 }).unwrap();
        }
    }
    let wait = |enough: Load, timeout| in_flight.wait(enough.into(), timeout);
    assert_eq!((wait(Load::items(3), Duration::ZERO), in_flight.load().items), (None, 4));
    assert_eq!(wait(Load::bytes(32), Duration::ZERO), Some(Ok(())));
    assert_eq!(wait(Load::bytes(24), Duration::from_millis(1)), None);
    assert_eq!(in_flight.waits_for(), Some("a".to_owned()), "also after a wait for a request to another table");
    // A thread that waits for both is woken although the older table goes on last.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (0..1000).find_map(|_| wait(Load::NONE, Duration::from_secs(10))));
        let request = SampleRequest { num_samples: 2, ..Default::default() };
        for name in ["b", "a"] {
            tables.get(name).unwrap().sample(request).unwrap();
        }
        assert_eq!(waits.join().unwrap(), Some(Ok(())));
    });
    // Another thread pushes and settles while one waits.
    let more: Vec<_> = (0..100).map(|_| tables.insert("a", rows.inserts(&[1.0])).unwrap()).collect();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (0..1000).find_map(|_| wait(Load::items(50), Duration::from_secs(10))));
        let request = SampleRequest { num_samples: 1, ..Default::default() };
        for ticket in more {
            in_flight.push("a", ticket, Load { items: 1, bytes: 8 }).unwrap();
            in_flight.remove_confirmed().unwrap();
            tables.get("a").unwrap().sample(request).unwrap();
        }
        assert_eq!(waits.join().unwrap(), Some(Ok(())));
    });
    assert_eq!((in_flight.remove_confirmed(), in_flight.waits_for()), (Ok(Load::NONE), None));
    for _ in 0..2 {
        let ticket = tables.insert("a", rows.inserts(&[1.0])).unwrap();
        in_flight.push("a", ticket, Load { items: 1, bytes: 8 }).unwrap();
    }
    tables.get("a").unwrap().close();
    for _ in 0..2 {
        assert!(matches!(wait(Load::NONE, Duration::ZERO), Some(Err(Error::Closed { .. }))));
    }
    assert_eq!(wait(Load::NONE, Duration::ZERO), Some(Ok(())));
}
