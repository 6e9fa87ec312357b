//! How long a table's lock is held for a request of very many draws: the clock is read once for each hold.

mod support;

use reverie_core::clock::Clock;
use reverie_core::sample::SampleRequest;
use reverie_core::table::Tables;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Rows, f64_of, options, queue};

#[derive(Default)]
struct Counting(AtomicUsize);

impl Clock for Counting {
    fn now(&self) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    }
}

#[test]
fn a_request_for_very_many_draws_lets_go_of_the_lock_in_between() {
    let clock = Arc::new(Counting::default());
    let as_clock: Arc<dyn Clock> = clock.clone();
    let tables = Arc::new(Tables::new(vec![options("t", 10)], None, &as_clock, 7).unwrap());
    let table = tables.get("t").unwrap();
    table.insert(Rows::new(&tables).inserts(&[1.0, 2.0])).unwrap();
    let holds = |num_samples| {
        let before = clock.0.load(Ordering::Relaxed);
        let mut ticket = table.sample(SampleRequest { num_samples, ..Default::default() }).unwrap();
        let draws = ticket.poll().expect("nothing holds it back").unwrap();
        assert_eq!(draws.len(), num_samples);
        assert!(draws.times_sampled.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order, and each counted once");
        clock.0.load(Ordering::Relaxed) - before
    };
    assert_eq!(holds(1_000), 1);
    assert!((6..=13).contains(&holds(200_000)), "of at most 2^15 draws each");
}

#[test]
fn a_request_that_waits_for_many_inserts_is_served_in_order_when_they_come() {
    let (tables, _) = support::tables(vec![queue("q", 100_000)]);
    let table = tables.get("q").unwrap();
    let request = |num_samples| SampleRequest { num_samples, ..Default::default() };
    let mut first = table.sample(request(40_000)).unwrap();
    let mut second = table.sample(request(10)).unwrap();
    let values: Vec<f64> = (0..40_010).map(f64::from).collect();
    table.insert(Rows::new(&tables).inserts(&values)).unwrap();
    let taken = |ticket: &mut reverie_core::table::Ticket<reverie_core::sample::Draws>| -> Vec<f64> {
        ticket.poll().expect("it was served").unwrap().items.iter().map(f64_of).collect()
    };
    assert_eq!(taken(&mut first), values[..40_000]);
    assert_eq!(taken(&mut second), values[40_000..]);
}
