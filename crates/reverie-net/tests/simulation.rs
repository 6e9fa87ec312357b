//! Server and clients in a simulated network, with partitions, half-open connections, delays and crashes, each run from
//! one seed. A run that fails names its seed: `REVERIE_SIMULATION_SEED=N` runs that one, `REVERIE_SIMULATIONS=N` so
//! many.

mod simulated;

use simulated::{Summary, World};

/// Simulations of a run on CI, of both kinds together, and of a run at a desk, where they would take half of its time.
const ON_CI: u64 = 240;
/// See [`ON_CI`].
const QUICK: u64 = 32;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

/// Runs the seeds that are `rest` beyond a multiple of two. `None` if one seed was asked for.
fn run(rest: u64) -> Option<(u64, Summary)> {
    if let Some(seed) = number("REVERIE_SIMULATION_SEED") {
        if seed % 2 == rest {
            println!("{:?}", World::run(seed));
        }
        return None;
    }
    let (mut count, mut all) = (0, Summary::default());
    let usual = if std::env::var_os("CI").is_some() { ON_CI } else { QUICK };
    for seed in (rest..number("REVERIE_SIMULATIONS").unwrap_or(usual)).step_by(2) {
        let one = World::run(seed);
        count += 1;
        all.lives += one.lives;
        all.restored += one.restored;
        all.confirmed += one.confirmed;
        all.consumed += one.consumed;
        all.consumers += one.consumers;
        all.reconnects += one.reconnects;
        all.late += one.late;
        all.withdrawn += one.withdrawn;
        all.unknown += one.unknown;
        all.abandoned += one.abandoned;
    }
    println!("{count} simulations: {all:?}");
    // A network in which nothing goes wrong would show nothing.
    let each = |least: u64| least * count / 100;
    assert!(
        all.lives as u64 > count
            && all.reconnects > each(100)
            && all.consumers > each(120)
            && all.late > each(100)
            && all.confirmed as u64 > each(10_000)
            && all.withdrawn > each(500)
            && all.unknown > each(5)
            && all.abandoned > each(300),
        "{all:?}"
    );
    Some((count, all))
}

#[test]
fn no_insert_and_no_draw_is_lost_or_done_twice_where_servers_save_and_go_on_from_what_they_saved() {
    if let Some((count, all)) = run(0) {
        assert!(all.restored as u64 > count / 20, "{all:?}");
    }
}

#[test]
fn no_insert_and_no_draw_is_lost_or_done_twice_where_servers_save_nothing() {
    run(1);
}
