//! The distribution of draws: every random selector against its exact distribution, and against one that is
//! 5 % wrong and must be distinguished from it.

use reverie_core::table::selector::{AnySelector, Selector, SelectorOptions};

const DRAWS: usize = 200_000;
/// In standard deviations: a right selector fails one seed in some 1.7 million, and seeds are fixed.
const TOLERANCE: f64 = 5.0;

/// The distance of Pearson's statistic from its mean under `expected`, in standard deviations of a normal variable
/// (Wilson and Hilferty 1931). Infinite where something impossible was drawn.
fn deviation(counts: &[u64], expected: &[f64]) -> f64 {
    let draws: u64 = counts.iter().sum();
    let mut statistic = 0.0;
    let mut possible = 0;
    for (count, probability) in counts.iter().zip(expected) {
        let wanted = probability * draws as f64;
        if *probability == 0.0 {
            if *count > 0 {
                return f64::INFINITY;
            }
            continue;
        }
        assert!(wanted >= 5.0, "too few draws for this probability: {probability}");
        possible += 1;
        statistic += (*count as f64 - wanted).powi(2) / wanted;
    }
    let freedom = f64::from(possible - 1);
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Every other possible item 5 % more likely than it should be, the others that much less.
fn five_percent_wrong(expected: &[f64]) -> Vec<f64> {
    let mut odd = false;
    let wrong = expected.iter().map(|probability| {
        odd ^= *probability > 0.0;
        probability * if odd { 1.05 } else { 0.95 }
    });
    let wrong: Vec<f64> = wrong.collect();
    let sum: f64 = wrong.iter().sum();
    wrong.iter().map(|probability| probability / sum).collect()
}

/// A hundred items on slots far apart, after others came and went and every priority was changed once.
fn filled(options: SelectorOptions, priority: impl Fn(u32) -> f64) -> AnySelector {
    let mut selector = AnySelector::new(&options, 20_240_607);
    (0..400).for_each(|slot| selector.insert(slot * 13, f64::from(slot % 5)));
    (0..400).filter(|slot| slot % 4 != 0).for_each(|slot| selector.remove(slot * 13));
    let updates: Vec<_> = (0..100).map(|item| (item * 52, priority(item))).collect();
    selector.update_many(&updates);
    selector
}

fn counts(selector: &mut AnySelector) -> Vec<u64> {
    let mut picks = Vec::new();
    while picks.len() < DRAWS {
        // Both ways to draw take part.
        selector.draw_many(999, &mut picks);
        picks.extend(selector.draw());
    }
    let mut counts = vec![0; 100];
    picks.iter().for_each(|pick| counts[pick.slot as usize / 52] += 1);
    counts
}

fn assert_drawn_as(options: SelectorOptions, priority: impl Fn(u32) -> f64, weight: impl Fn(u32) -> f64) {
    let sum: f64 = (0..100).map(&weight).sum();
    let expected: Vec<f64> = (0..100).map(|item| weight(item) / sum).collect();
    let counts = counts(&mut filled(options, priority));
    let right = deviation(&counts, &expected);
    assert!(right.abs() < TOLERANCE, "{options} is {right} standard deviations from its distribution");
    let wrong = deviation(&counts, &five_percent_wrong(&expected));
    assert!(wrong > TOLERANCE, "{options} is only {wrong} standard deviations from a distribution that is 5 % off");
}

fn ramp(item: u32) -> f64 {
    f64::from(item % 10 + 1) / 4.0
}

#[test]
fn uniform_draws_every_item_equally_often() {
    assert_drawn_as(SelectorOptions::Uniform, ramp, |_| 1.0);
}

#[test]
fn prioritized_draws_in_proportion_to_the_power_of_the_priority() {
    for exponent in [0.5, 0.6, 1.0, 1.3, -0.4] {
        assert_drawn_as(SelectorOptions::Prioritized { exponent }, ramp, |item| ramp(item).powf(exponent));
    }
}

#[test]
fn stratified_batches_have_the_same_distribution_all_together() {
    assert_drawn_as_a_whole(SelectorOptions::Stratified { exponent: 0.6 });
}

/// Spread-out draws vary less than independent ones, so that no chi-square fits; the frequencies must.
fn assert_drawn_as_a_whole(options: SelectorOptions) {
    let weight = |item: u32| ramp(item).powf(0.6);
    let sum: f64 = (0..100).map(weight).sum();
    let mut selector = filled(options, ramp);
    let (mut counts, batches, n) = (vec![0_u64; 100], 400, 250);
    for _ in 0..batches {
        let mut picks = Vec::new();
        selector.draw_many(n, &mut picks);
        let mut batch = [0_i64; 100];
        picks.iter().for_each(|pick| batch[pick.slot as usize / 52] += 1);
        for (item, count) in batch.iter().enumerate() {
            // An item reaches over so many parts, two of them in part: independent draws go far outside of this.
            let expected = n as f64 * weight(item as u32) / sum;
            assert!(
                (*count as f64 - expected).abs() < 2.0,
                "item {item}: {count} draws of one batch, {expected} expected"
            );
            counts[item] += *count as u64;
        }
    }
    for (item, count) in counts.iter().enumerate() {
        let expected = (batches * n) as f64 * weight(item as u32) / sum;
        // The variance of a batch is that of the two parts which an item has in part: a quarter each at most.
        let tolerance = TOLERANCE * (0.5 * batches as f64).sqrt();
        assert!((*count as f64 - expected).abs() < tolerance, "item {item}: {count} draws, {expected} expected");
    }
}

#[test]
fn independent_batches_are_not_spread_out() {
    let spread_out =
        std::panic::catch_unwind(|| assert_drawn_as_a_whole(SelectorOptions::Prioritized { exponent: 0.6 }));
    assert!(spread_out.is_err(), "the test of stratified batches must tell them from independent ones");
}

#[test]
fn prioritized_with_exponent_zero_draws_every_item_equally_often_zeros_included() {
    assert_drawn_as(SelectorOptions::Prioritized { exponent: 0.0 }, |item| f64::from(item % 3), |_| 1.0);
}

#[test]
fn items_of_priority_zero_are_not_drawn_while_others_weigh() {
    let priority = |item| if item % 3 == 0 { 0.0 } else { ramp(item) };
    assert_drawn_as(SelectorOptions::Prioritized { exponent: 0.6 }, priority, |item| f64::powf(priority(item), 0.6));
}

#[test]
fn items_that_all_weigh_nothing_are_drawn_equally_often() {
    assert_drawn_as(SelectorOptions::Prioritized { exponent: 0.6 }, |_| 0.0, |_| 1.0);
}

#[test]
fn a_negative_exponent_draws_the_items_of_priority_zero_first_and_equally_often() {
    let priority = |item| if item % 3 == 0 { 0.0 } else { ramp(item) };
    assert_drawn_as(SelectorOptions::Prioritized { exponent: -0.4 }, priority, |item| f64::from(item % 3 == 0));
}

#[test]
fn consecutive_draws_do_not_depend_on_one_another() {
    for options in [SelectorOptions::Uniform, SelectorOptions::Prioritized { exponent: 1.0 }] {
        let mut selector = AnySelector::new(&options, 3);
        (0..10).for_each(|slot| selector.insert(slot, f64::from(slot + 1)));
        let chances: Vec<f64> = match options {
            SelectorOptions::Uniform => vec![0.1; 10],
            _ => (1..=10).map(|weight| f64::from(weight) / 55.0).collect(),
        };
        let pairs: Vec<f64> = chances.iter().flat_map(|a| chances.iter().map(move |b| a * b)).collect();
        let mut picks = Vec::new();
        selector.draw_many(2 * DRAWS, &mut picks);
        let mut counts = vec![0; 100];
        picks.chunks_exact(2).for_each(|pair| counts[(pair[0].slot * 10 + pair[1].slot) as usize] += 1);
        let right = deviation(&counts, &pairs);
        assert!(right.abs() < TOLERANCE, "pairs of {options} are {right} standard deviations off");
        assert!(deviation(&counts, &five_percent_wrong(&pairs)) > TOLERANCE);
    }
}

#[test]
fn a_key_that_is_never_drawn_is_noticed() {
    let mut counts = vec![2_000; 100];
    (counts[17], counts[18]) = (0, 4_000);
    assert!(deviation(&counts, &[0.01; 100]) > TOLERANCE);
    (counts[17], counts[18]) = (2_000, 2_000);
    let mut impossible = vec![1.0 / 99.0; 100];
    impossible[17] = 0.0;
    assert_eq!(deviation(&counts, &impossible), f64::INFINITY);
}
