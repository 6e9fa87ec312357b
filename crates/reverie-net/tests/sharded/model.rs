//! The decisions over several shards: which one is drawn from, and which draws are kept.

use crate::support::{shards, tally};
use reverie_core::table::Tally;
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_net::sharded::{KeptDraws, Model};

#[test]
fn shards_are_chosen_by_their_mass() {
    let mut three = shards(&[tally(1.0, 0, 9), tally(5.0, 0, 1), tally(0.0, 4, 4)]);
    let split = three.split(600_000).unwrap();
    assert_eq!(split.counts.iter().sum::<u64>(), 600_000);
    let far = |expected: f64| (split.counts[0] as f64 - expected).abs() / (600_000.0_f64 / 6.0 * 5.0 / 6.0).sqrt();
    assert!(far(100_000.0) < 5.0 && split.counts[2] == 0, "{split:?}");
    assert!(far(105_000.0) > 5.0, "a chance that is off by 5 % would show");
    let smallest = three.smallest_probability(&split.probabilities).unwrap();
    assert!((smallest * 54.0 - 1.0).abs() < 1e-12, "{smallest}");
}

#[test]
fn weights_of_nothing_and_of_infinity_are_what_they_are_in_one_table() {
    let probabilities = |tallies: &[Tally]| shards(tallies).probabilities();
    assert_eq!(
        probabilities(&[tally(0.0, 1, 1), tally(0.0, 3, 3)]),
        Some(vec![0.25, 0.75]),
        "all zero: any item alike"
    );
    assert_eq!(probabilities(&[tally(0.0, 9, 9), tally(1e-300, 5, 6)]), Some(vec![0.0, 1.0]));
    let infinite = tally(f64::INFINITY, 3, 5);
    assert_eq!(probabilities(&[infinite, tally(1e300, 0, 9), infinite]), Some(vec![0.5, 0.0, 0.5]));
    assert_eq!(
        probabilities(&[tally(1e308, 0, 1), tally(1e308, 0, 1)]),
        Some(vec![0.5, 0.5]),
        "their sum is no number"
    );
    assert_eq!(probabilities(&[tally(0.0, 0, 0); 2]), None);
}

#[test]
fn a_lost_shard_counts_for_the_ratio_and_not_for_the_distribution() {
    let mut two = shards(&[tally(1.0, 0, 10), tally(3.0, 0, 30)]);
    two.lost(1);
    assert_eq!(two.probabilities(), Some(vec![1.0, 0.0]));
    assert_eq!(two.counters(), Counters { inserts: 40, samples: 0, deletes: 30 });
    two.received(1, tally(3.0, 0, 30));
    assert_eq!(two.counters(), Counters { inserts: 40, samples: 0, deletes: 0 });
    // Another incarnation, which starts from a checkpoint of 20 items: they were counted.
    two.received(1, Tally { incarnation: 2, ..tally(2.0, 0, 20) });
    assert_eq!(two.counters(), Counters { inserts: 40, samples: 0, deletes: 10 });
    two.received(1, Tally { incarnation: 2, ..tally(2.0, 0, 25) });
    assert_eq!(two.counters(), Counters { inserts: 45, samples: 0, deletes: 10 });
}

/// Draws by masses of before, then those of now: how many each shard gave in all.
fn corrected(then: &[Tally], now: &[Tally], draws: u64, keeps: bool) -> Vec<f64> {
    let mut of = shards(then);
    let mut counts = vec![0; then.len()];
    for _ in 0..draws / 50 {
        then.iter().enumerate().for_each(|(shard, tally)| of.received(shard, *tally));
        let split = of.split(50).unwrap();
        now.iter().enumerate().for_each(|(shard, tally)| of.received(shard, *tally));
        let KeptDraws { counts: kept, again, .. } = of.keep(&split).unwrap();
        assert_eq!(kept.iter().chain(&again).sum::<u64>(), 50);
        let given =
            if keeps { kept.iter().zip(&again).map(|(kept, again)| kept + again).collect() } else { split.counts };
        counts.iter_mut().zip(given).for_each(|(count, given)| *count += given);
    }
    counts.into_iter().map(|count| count as f64).collect()
}

fn chi_squared(observed: &[f64], probabilities: &[f64]) -> f64 {
    let all: f64 = observed.iter().sum();
    let terms = observed.iter().zip(probabilities).map(|(seen, chance)| (seen - all * chance).powi(2) / (all * chance));
    let degrees = (observed.len() - 1) as f64;
    (terms.sum::<f64>() - degrees) / (2.0 * degrees).sqrt()
}

#[test]
fn draws_by_masses_of_before_are_spread_by_those_of_now() {
    // One grew from nothing, one lost half, one stayed, one grew a little.
    let then = [tally(0.0, 0, 0), tally(4.0, 0, 4), tally(2.0, 0, 2), tally(3.0, 0, 3)];
    let now = [tally(3.0, 0, 3), tally(2.0, 0, 2), tally(2.0, 0, 2), tally(3.5, 0, 3)];
    let probabilities = shards(&now).probabilities().unwrap();
    assert!(chi_squared(&corrected(&then, &now, 200_000, true), &probabilities) < 5.0);
    // The twins: a chance off by a twentieth, and draws that stay where they were made.
    let wrong: Vec<f64> =
        [0.05, -0.05, 0.0, 0.0].iter().zip(&probabilities).map(|(off, chance)| chance * (1.0 + off)).collect();
    let all: f64 = wrong.iter().sum();
    let wrong: Vec<f64> = wrong.iter().map(|chance| chance / all).collect();
    assert!(chi_squared(&corrected(&then, &now, 200_000, true), &wrong) > 5.0);
    let before: f64 = chi_squared(&corrected(&then, &now, 200_000, false)[1..], &probabilities[1..]);
    assert!(before > 5.0);
    // Nothing is drawn again if nothing has changed.
    let mut of = shards(&now);
    let split = of.split(1000).unwrap();
    let kept = of.keep(&split).unwrap();
    assert_eq!((&kept.counts, kept.again), (&split.counts, vec![0; 4]));
    let gone = [tally(0.0, 0, 0); 4];
    assert_eq!(shards(&gone).keep(&split), None);
}

#[test]
fn draws_that_reach_no_caller_count_as_none() {
    let mut two = shards(&[tally(1.0, 0, 10), tally(1.0, 0, 10)]);
    let drawn = |samples| Tally { counters: Counters { inserts: 10, samples, deletes: 0 }, ..tally(1.0, 0, 10) };
    two.received(0, drawn(8));
    two.discard(0, 3);
    assert_eq!((two.counters().samples, two.discarded(0)), (5, 3));
    // Those of an incarnation that is gone stay out of its counts.
    two.received(0, Tally { incarnation: 2, ..drawn(0) });
    assert_eq!((two.counters().samples, two.discarded(0)), (5, 0));
}

#[test]
fn so_many_inserts_of_one_shard_as_nothing_can_change_before() {
    let mut two = Model::new(2, Limiter::min_size(101).unwrap(), 1);
    two.received(0, tally(0.0, 0, 0));
    two.received(1, tally(0.0, 0, 0));
    assert_eq!(two.patience(), 51);
    two.received(1, tally(60.0, 0, 60));
    assert_eq!(two.patience(), 21);
    two.lost(0);
    assert_eq!(two.patience(), 41);
    two.received(1, tally(101.0, 0, 101));
    assert_eq!(two.patience(), 1);
}

#[test]
fn clients_of_one_limiter_count_alike_whenever_they_began() {
    let counted = |samples: u64, incarnation: u64| Tally {
        incarnation,
        counters: Counters { inserts: 10, samples, deletes: 0 },
        ..tally(1.0, 0, 10)
    };
    let counters = |of: fn(Model) -> Model, tallies: &[Tally]| {
        let mut one = of(Model::new(1, Limiter::min_size(1).unwrap(), 3));
        tallies.iter().for_each(|tally| one.received(0, *tally));
        one.counters()
    };
    let (early, late) = ([counted(70, 1), counted(5, 2)], [counted(5, 2)]);
    assert_eq!(counters(Model::among_others, &early), counters(Model::among_others, &late));
    // A client that is alone counts the draws made before the shard was lost.
    assert_eq!(counters(|one| one, &early), Counters { inserts: 10, samples: 70, deletes: 0 });
    assert_eq!(counters(|one| one, &late), Counters { inserts: 10, samples: 5, deletes: 0 });
}

#[test]
fn offers_of_shards_are_taken_in_the_order_in_which_one_table_would_draw_them() {
    // Items of weights 6 and 2; 3 and 1; 4. The first draw is of a shard with the chance of its mass.
    let offered = [vec![0.75, 0.25], vec![0.75, 0.25], vec![1.0]];
    let mut three = shards(&[tally(8.0, 0, 2), tally(4.0, 0, 2), tally(4.0, 0, 1)]);
    let mut firsts = [0.0; 3];
    let rounds = 40_000;
    for _ in 0..rounds {
        let split = three.race(&offered, 1).unwrap();
        (0..3).for_each(|shard| firsts[shard] += split.counts[shard] as f64);
    }
    let far = |shard: usize, chance: f64| {
        (firsts[shard] - rounds as f64 * chance).abs() / (rounds as f64 * chance * (1.0 - chance)).sqrt()
    };
    assert!(far(0, 0.5) < 5.0 && far(1, 0.25) < 5.0 && far(2, 0.25) < 5.0, "{firsts:?}");
    assert!(far(0, 0.525) > 5.0, "a chance that is off by 5 % would show");
    assert_eq!(three.race(&offered, 5).unwrap().counts, [2, 2, 1]);
    assert_eq!(three.race(&offered, 6), None, "there are five");
}

/// The number of races for `wanted` draws, of so many, in which shard 0 gave `counted` of them.
fn of_shard_0(shards: &mut Model, offered: &[Vec<f64>], wanted: u64, counted: u64, rounds: u32) -> f64 {
    (0..rounds).filter(|_| shards.race(offered, wanted).unwrap().counts[0] == counted).count() as f64
}

/// The distance of a count of hits from that of a chance, in standard deviations.
fn far(hits: f64, chance: f64, rounds: u32) -> f64 {
    let rounds = f64::from(rounds);
    (hits - rounds * chance).abs() / (rounds * chance * (1.0 - chance)).sqrt()
}

#[test]
fn a_shard_that_gave_an_item_is_drawn_from_by_what_it_has_left() {
    // Weights 1 and 1, and 1: after one of its two shard 0 is as likely as the other.
    let offered = [vec![0.5, 0.5], vec![1.0]];
    let mut two = shards(&[tally(2.0, 0, 2), tally(1.0, 0, 1)]);
    let rounds = 12_000;
    let one_of_each = of_shard_0(&mut two, &offered, 2, 1, rounds);
    let chance = 2.0 / 3.0 * 1.0 / 2.0 + 1.0 / 3.0;
    assert!(far(one_of_each, chance, rounds) < 5.0, "{one_of_each}");
    assert!(far(one_of_each, chance * 1.05, rounds) > 5.0, "a chance that is off by 5 % would show");
}

#[test]
fn items_that_weigh_nothing_come_last_and_each_as_soon_as_any_other() {
    let offered = [vec![1.0, 0.0, 0.0, 0.0], vec![1.0, 0.0]];
    let mut two = shards(&[tally(1.0, 3, 4), tally(1.0, 1, 2)]);
    assert_eq!(of_shard_0(&mut two, &offered, 2, 1, 1_000), 1_000.0, "one of each shard weighs something");
    // Shard 0 has three of the four items without weight: it gives the first with chance 3/4, and the next with 2/3.
    let rounds = 16_000;
    for (wanted, counted, chance) in [(3, 2, 3.0 / 4.0), (4, 3, 3.0 / 4.0 * 2.0 / 3.0)] {
        let hits = of_shard_0(&mut two, &offered, wanted, counted, rounds);
        assert!(far(hits, chance, rounds) < 5.0, "{hits} for {chance}");
        assert!(far(hits, chance * 1.05, rounds) > 5.0, "a chance that is off by 5 % would show");
    }
}
