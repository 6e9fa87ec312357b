//! Server and clients in a simulated network, with partitions, half-open connections, delays and crashes, each run from
//! one seed. A run that fails names its seed: `REVERIE_SIMULATION_SEED=N` runs that one, `REVERIE_SIMULATIONS=N` so many.

mod simulated;

use simulated::{Summary, World};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn whatever_happens_no_insert_is_lost_or_done_twice_and_no_deadline_is_missed() {
    if let Some(seed) = number("REVERIE_SIMULATION_SEED") {
        println!("{:?}", World::run(seed));
        return;
    }
    let mut all = Summary::default();
    for seed in 0..number("REVERIE_SIMULATIONS").unwrap_or(20) {
        let one = World::run(seed);
        all.lives += one.lives;
        all.restored += one.restored;
        all.confirmed += one.confirmed;
        all.consumed += one.consumed;
        all.reconnects += one.reconnects;
        all.late += one.late;
        all.withdrawn += one.withdrawn;
        all.unknown += one.unknown;
        all.abandoned += one.abandoned;
    }
    println!("{all:?}");
    // A network in which nothing goes wrong would show nothing.
    assert!(
        all.lives > 20 && all.restored > 5 && all.reconnects > 20 && all.late > 20 && all.confirmed > 2000,
        "{all:?}"
    );
}
