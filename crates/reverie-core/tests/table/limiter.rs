//! The limiter at its boundaries.

use super::support::cases::cases;
use super::support::{queue_limiter, ratio_limiter};
use proptest::prelude::*;
use reverie_core::Error;
use reverie_core::table::limiter::{Counters, InsertBlock, Limiter, SampleBlock};

fn counters(inserts: u64, samples: u64, deletes: u64) -> Counters {
    Counters { inserts, samples, deletes }
}

fn refusal(result: Result<Limiter, Error>) -> String {
    match result {
        Err(Error::InvalidArgument(reason)) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn sampling_opens_exactly_at_its_boundaries() {
    // samples_per_insert, min_size, min_diff, max_diff; inserts, samples, deletes; n; sample?
    let ratio = Limiter::new(2.0, 3, -1.0, 10.0).unwrap();
    let queue = queue_limiter(5);
    let table = [
        (ratio, counters(2, 0, 0), 1, false), // too small by one item
        (ratio, counters(3, 0, 0), 1, true),
        (ratio, counters(3, 0, 1), 1, false), // a removal brings it under its minimum again
        (ratio, counters(3, 0, 0), 7, true),  // 6 - 0 - 7 = -1, which is min_diff
        (ratio, counters(3, 0, 0), 8, false),
        (ratio, counters(3, 6, 0), 1, true),
        (ratio, counters(3, 7, 0), 1, false),
        (ratio, counters(3, 7, 0), 0, true),
        (ratio, counters(4, 7, 0), 2, true),
        (queue, counters(0, 0, 0), 1, false),
        (queue, counters(1, 0, 0), 1, true),
        (queue, counters(2, 1, 1), 1, true),
        (queue, counters(2, 2, 1), 1, false), // every insert was sampled
        (queue, counters(2, 0, 0), 2, true),
        (queue, counters(2, 0, 0), 3, false),
    ];
    for (limiter, counters, n, open) in table {
        assert_eq!(limiter.can_sample(&counters, n), open, "{n} samples of {counters:?} under {limiter:?}");
    }
}

#[test]
fn inserting_opens_exactly_at_its_boundaries() {
    let ratio = Limiter::new(2.0, 3, -1.0, 10.0).unwrap();
    let low = Limiter::new(2.0, 3, -1.0, 4.0).unwrap();
    let queue = queue_limiter(5);
    let table = [
        (ratio, counters(4, 0, 0), 1, true), // 10, which is max_diff
        (ratio, counters(5, 0, 0), 1, false),
        (ratio, counters(5, 1, 0), 1, false),
        (ratio, counters(5, 2, 0), 1, true),
        (ratio, counters(3, 0, 0), 2, true),
        (ratio, counters(3, 0, 0), 3, false),
        (low, counters(2, 0, 0), 1, true), // 6 > 4, but up to the minimum size all may come in
        (low, counters(1, 0, 0), 2, true),
        (low, counters(1, 0, 0), 3, false),
        (low, counters(3, 0, 0), 1, false),
        (low, counters(9, 0, 7), 1, true), // under the minimum again, whatever the ratio
        (low, counters(9, 0, 7), 2, false),
        (queue, counters(4, 0, 0), 1, true),
        (queue, counters(5, 0, 0), 1, false),
        (queue, counters(5, 1, 1), 1, true),
        (queue, counters(0, 0, 0), 5, true),
        (queue, counters(0, 0, 0), 6, false),
    ];
    for (limiter, counters, n, open) in table {
        assert_eq!(limiter.can_insert(&counters, n), open, "{n} inserts into {counters:?} under {limiter:?}");
    }
}

#[test]
fn a_minimum_size_limits_nothing_else() {
    let limiter = Limiter::min_size(2).unwrap();
    assert_eq!((limiter.samples_per_insert(), limiter.min_diff(), limiter.max_diff()), (1.0, f64::MIN, f64::MAX));
    assert!(!limiter.can_sample(&counters(1, 0, 0), 1));
    assert!(limiter.can_sample(&counters(2, 1 << 50, 0), 1 << 50));
    assert!(limiter.can_insert(&counters(1 << 50, 0, 0), 1 << 50));
    assert_eq!(limiter.inserts_until_sample(&counters(1 << 40, 1 << 50, 1 << 40)), Some(2));
}

#[test]
fn numbers_that_cannot_be_right_are_refused_by_name() {
    let nan = f64::NAN;
    for spi in [0.0, -1.0, nan, f64::INFINITY] {
        let reason = refusal(Limiter::new(spi, 1, 0.0, 1.0));
        assert_eq!(reason, format!("samples_per_insert must be a positive finite number, got {spi}"));
    }
    let cases = [
        (Limiter::new(1.0, 0, 0.0, 1.0), "min_size_to_sample must be at least 1, got 0"),
        (Limiter::min_size(0), "min_size_to_sample must be at least 1, got 0"),
        (Limiter::new(1.0, 1, nan, 1.0), "min_diff must be a number, got NaN"),
        (Limiter::new(1.0, 1, 0.0, nan), "max_diff must be a number, got NaN"),
        (Limiter::new(1.0, 1, 2.0, 1.0), "min_diff must not be above max_diff, got 2 and 1"),
    ];
    for (result, reason) in cases {
        assert_eq!(refusal(result), reason);
    }
    assert!(Limiter::new(1.0, 1, 1.0, 1.0).is_ok());
    assert!(Limiter::new(1.0, 1, f64::NEG_INFINITY, f64::INFINITY).is_ok());
}

#[test]
fn limits_under_the_start_are_warned_about() {
    let warning = Limiter::new(2.0, 10, 0.0, 19.0).unwrap().warning().expect("19 is below 20");
    assert!(warning.starts_with("max_diff = 19 is below samples_per_insert * min_size_to_sample = 20"), "{warning}");
    assert_eq!(Limiter::new(2.0, 10, 0.0, 20.0).unwrap().warning(), None);
}

#[test]
fn limits_so_narrow_that_both_sides_come_to_wait_are_warned_about() {
    // A difference of 0 is neither enough for a sample nor low enough for an insert.
    let warning = Limiter::new(1.0, 1, 0.0, 1.0).unwrap();
    assert_eq!(warning.warning(), None, "a queue of one works");
    let warning = Limiter::new(3.0, 1, 0.5, 3.4).unwrap().warning().expect("after three samples both wait");
    assert!(warning.contains("after 1 insert and 2 samples both wait"), "{warning}");
    assert_eq!(Limiter::min_size(5).unwrap().warning(), None);
}

#[test]
fn a_table_that_can_never_be_sampled_is_reported_with_its_numbers() {
    let small = Limiter::min_size(11).unwrap();
    assert_eq!(small.impossible(11), None);
    let reason = small.impossible(10).expect("eleven do not go into ten");
    assert!(reason.contains("min_size_to_sample is 11") && reason.contains("max_size = 10"), "{reason}");

    // Inserts stop at 5 (10 = max_diff); the first sample needs 9.5 + 1, the difference then is 10.
    let reason = Limiter::new(2.0, 3, 9.5, 10.0).unwrap().impossible(100).expect("nothing can ever be sampled");
    assert!(reason.contains("max_diff = 10") && reason.contains("min_diff = 9.5"), "{reason}");
    assert_eq!(Limiter::new(2.0, 3, 9.0, 10.0).unwrap().impossible(100), None);
    assert_eq!(Limiter::new(2.0, 6, 9.5, 10.0).unwrap().impossible(100), None, "the minimum size lets a sixth in");
    assert!(Limiter::new(1.0, 1, f64::INFINITY, f64::INFINITY).unwrap().impossible(100).is_some());
    assert_eq!(queue_limiter(1).impossible(1), None);
}

#[test]
fn a_blocked_side_reports_what_would_free_it() {
    let limiter = ratio_limiter(8.0, 1_000, 2_000.0);
    let sample = |counters| limiter.blocked_sample(&counters).map(|block| block.to_string());
    let insert = |counters| limiter.blocked_insert(&counters).map(|block| block.to_string());
    assert_eq!(sample(counters(1_000, 0, 0)), None);
    assert_eq!(
        sample(counters(997, 0, 0)).unwrap(),
        "3 more inserts are needed: 997 of 1000 items (min_size_to_sample)"
    );
    assert_eq!(
        sample(counters(2_000, 10_000, 1_001)).unwrap(),
        "1 more insert is needed: 999 of 1000 items (min_size_to_sample)"
    );
    assert_eq!(
        sample(counters(2_000, 10_011, 1_001)).unwrap(),
        "2 more inserts are needed: 999 of 1000 items (min_size_to_sample), and the ratio of samples to inserts asks \
         for more (min_diff)"
    );
    assert_eq!(
        sample(counters(2_000, 10_000, 0)).unwrap(),
        "1 more insert is needed: 2000 inserts * 8 (samples_per_insert) - 10000 samples - 1 is 5999, below 6000 (min_diff)"
    );
    assert_eq!(insert(counters(1_249, 0, 0)), None);
    assert_eq!(
        insert(counters(1_250, 1, 0)).unwrap(),
        "7 more samples are needed: (1250 inserts + 1) * 8 (samples_per_insert) - 1 sample is 10007, above 10000 \
         (max_diff)"
    );
}

#[test]
fn neither_count_promises_anything_if_both_sides_wait() {
    let stuck = Limiter::new(3.0, 1, 0.5, 3.4).unwrap();
    let at = counters(1, 2, 0);
    let Some(SampleBlock::RatioTooLow { inserts_needed: None, diff, .. }) = stuck.blocked_sample(&at) else {
        panic!("{:?}", stuck.blocked_sample(&at));
    };
    assert_eq!(diff, 0.0);
    let Some(InsertBlock::RatioTooHigh { samples_needed: None, diff, .. }) = stuck.blocked_insert(&at) else {
        panic!("{:?}", stuck.blocked_insert(&at));
    };
    assert_eq!(diff, 4.0);
    let text = stuck.blocked_insert(&at).unwrap().to_string();
    assert!(text.starts_with("samples alone cannot help, they would wait for inserts (or for new limits): "), "{text}");
}

/// The definition, walked one by one.
fn walk(limiter: &Limiter, mut at: Counters, inserting: bool) -> Option<u64> {
    for steps in 0..10_000 {
        let (open, may_go) = if inserting {
            (limiter.can_sample(&at, 1), limiter.can_insert(&at, 1))
        } else {
            (limiter.can_insert(&at, 1), limiter.can_sample(&at, 1))
        };
        if open {
            return Some(steps);
        }
        if !may_go {
            return None;
        }
        if inserting { at.inserts += 1 } else { at.samples += 1 }
    }
    panic!("{limiter:?} does not open from {at:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(20_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_counts_to_an_opening_are_what_a_walk_finds(
        spi in prop_oneof![Just(0.1), Just(1.0 / 3.0), Just(1.0), Just(2.5), Just(8.0), 0.05..20.0],
        min_size in 1..30_u64, low in -50.0..50.0, width in 0.0..60.0, whole: bool,
        inserts in 0..200_u64, samples in 0..300_u64, deleted in 0.0..1.0,
    ) {
        let (low, width) = if whole { (f64::round(low), f64::round(width)) } else { (low, width) };
        let limiter = Limiter::new(spi, min_size, low, low + width).unwrap();
        let at = counters(inserts, samples, (inserts as f64 * deleted) as u64);
        prop_assert_eq!(limiter.inserts_until_sample(&at), walk(&limiter, at, true));
        prop_assert_eq!(limiter.samples_until_insert(&at), walk(&limiter, at, false));
        prop_assert_eq!(limiter.blocked_sample(&at).is_none(), limiter.can_sample(&at, 1));
        prop_assert_eq!(limiter.blocked_insert(&at).is_none(), limiter.can_insert(&at, 1));
    }
}

#[test]
fn the_counts_to_an_opening_are_exact_where_a_division_rounds() {
    // Decimal fractions: the quotient is off by a little to either side, the count must not be off by one.
    let ratios = [0.1, 0.3, 0.7, 1.1, 4.9];
    for (spi, tenths) in ratios.into_iter().flat_map(|spi| (-60..60).map(move |tenths| (spi, tenths))) {
        let low = f64::from(tenths) / 10.0;
        let limiter = Limiter::new(spi, 1, low, low + 3.7).unwrap();
        for at in [counters(1, 0, 0), counters(3, 2, 0), counters(10, 1, 0), counters(40, 9, 0)] {
            assert_eq!(limiter.inserts_until_sample(&at), walk(&limiter, at, true), "{limiter:?} at {at:?}");
            assert_eq!(limiter.samples_until_insert(&at), walk(&limiter, at, false), "{limiter:?} at {at:?}");
        }
    }
}

#[test]
fn the_counts_to_an_opening_are_found_where_very_many_counts_give_the_same_difference() {
    // The difference is a multiple of 2^48 here: the estimates are off by as much.
    let huge = 2_f64.powi(100);
    let limiter = Limiter::new(huge, 1, f64::MIN, huge - 2_f64.powi(50)).unwrap();
    let at = counters(1, 5, 0);
    let needed = limiter.samples_until_insert(&counters(0, 5, 0));
    assert_eq!(needed, Some(0), "below the minimum size");
    assert_eq!(limiter.samples_until_insert(&at), None);
    assert!(limiter.blocked_insert(&at).is_some());
    for (exponent, below) in [(60, 8), (80, 30), (100, 51), (100, 49)] {
        let (spi, less) = (2_f64.powi(exponent), 2_f64.powi(below));
        let limiter = Limiter::new(spi, 1, f64::MIN, 2.0 * spi - less).unwrap();
        let at = counters(1, 0, 0);
        let opens = |samples| limiter.can_insert(&counters(1, samples, 0), 1);
        match limiter.samples_until_insert(&at) {
            Some(n) => assert!(opens(n) && !opens(n - 1), "2^{exponent}: {n}"),
            None => assert!(!opens(1 << 53), "2^{exponent}"),
        }
        let limiter = Limiter::new(spi, 1, 2.0 * spi - less, f64::MAX).unwrap();
        let needed = limiter.inserts_until_sample(&at).unwrap();
        let opens = |inserts| limiter.can_sample(&counters(1 + inserts, 0, 0), 1);
        assert!(opens(needed) && (needed == 0 || !opens(needed - 1)), "2^{exponent}: {needed}");
        let most = Limiter::new(spi, 1, f64::MIN, 7.0 * spi).unwrap().most_inserts(&at).unwrap();
        assert_eq!(most, 7, "2^{exponent}");
    }
}
