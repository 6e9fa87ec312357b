use super::*;
use proptest::prelude::*;

/// Checks that every total, running sum and extreme matches its node's lanes, bit for bit.
fn assert_consistent(tree: &mut SumTree) {
    tree.settle();
    let mut below: Vec<WeightSummary> = tree.leaves.iter().map(WeightSummary::of_leaf).collect();
    for level in &mut tree.levels.clone() {
        assert_eq!(level.len(), below.len().div_ceil(LANES));
        for (index, summary) in below.iter().enumerate() {
            let (branch, lane) = (&level[index / LANES], index % LANES);
            let (total, smallest, largest) = (branch.totals.0[lane], branch.smallest.0[lane], branch.largest.0[lane]);
            assert_eq!(WeightSummary { total, smallest, largest }, *summary);
        }
        below = level
            .iter_mut()
            .map(|branch| {
                let prefixes = branch.prefixes;
                let summary = branch.refresh();
                assert_eq!(prefixes, branch.prefixes);
                summary
            })
            .collect();
    }
    let total = below.first().map_or(0.0, |root| root.total);
    assert!(below.len() <= 1, "the top level is one node");
    assert_eq!(tree.total(), total);
    let leaves = tree.leaves.clone();
    let weights = || leaves.iter().flat_map(|leaf| leaf.0).filter(|weight| *weight > 0.0);
    assert_eq!(tree.smallest(), weights().reduce(f64::min));
    assert_eq!(tree.largest(), weights().reduce(f64::max));
    assert_eq!(tree.smallest_slot().map(|slot| tree.get(slot)), weights().reduce(f64::min));
    assert_eq!(tree.largest_slot().map(|slot| tree.get(slot)), weights().reduce(f64::max));
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(0.0), 4 => 0.0..2.0, 1 => Just(1e-300), 1 => Just(1e290), 1 => Just(f64::MIN_POSITIVE)]
}

fn slot() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0..70_u32, 2 => 0..600_u32, 1 => 0..9_000_u32]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totals_and_extremes_always_follow_from_the_weights(
        batches in prop::collection::vec(prop::collection::vec((slot(), weight()), 1..60), 1..8),
    ) {
        let mut tree = SumTree::new();
        let mut list = std::collections::BTreeMap::new();
        for (index, batch) in batches.iter().enumerate() {
            for (slot, weight) in batch {
                // A first round so that every slot is known; every other batch then goes in as one.
                let old = tree.set(*slot, *weight);
                prop_assert_eq!(old, list.insert(*slot, *weight).unwrap_or(0.0));
            }
            if index % 2 == 1 {
                let halved: Vec<_> = batch.iter().map(|(slot, weight)| (*slot, weight / 2.0)).collect();
                let mut seen = Vec::new();
                tree.set_many(halved.iter().copied(), |slot, old, new| seen.push((slot, old, new)));
                let wanted: Vec<_> = halved.iter().map(|(slot, new)| (*slot, list.insert(*slot, *new).unwrap(), *new)).collect();
                prop_assert_eq!(seen, wanted);
            }
            assert_consistent(&mut tree);
        }
        prop_assert!(list.iter().all(|(slot, weight)| tree.get(*slot) == *weight));
    }

    #[test]
    fn a_point_falls_on_the_slot_whose_stretch_it_is_in(
        weights in prop::collection::vec(prop_oneof![1 => Just(0_u32), 3 => 1..1_000_u32], 1..700), at in 0.0..1.0,
    ) {
        // Whole numbers: every sum is exact in any order.
        let mut tree = SumTree::new();
        weights.iter().enumerate().for_each(|(slot, weight)| { tree.set(slot as u32, f64::from(*weight)); });
        let sum: u32 = weights.iter().sum();
        prop_assume!(sum > 0);
        let point = at * f64::from(sum);
        let mut end = 0.0;
        let wanted = weights.iter().position(|weight| { end += f64::from(*weight); end > point }).unwrap();
        prop_assert_eq!(tree.find(point), (wanted as u32, f64::from(weights[wanted])));
    }

    #[test]
    fn no_point_not_even_past_the_end_falls_on_a_slot_without_weight(
        entries in prop::collection::vec((slot(), weight()), 1..80), at in prop::collection::vec(0.0..1.0, 1..600),
    ) {
        let mut tree = SumTree::new();
        entries.iter().for_each(|(slot, weight)| { tree.set(*slot, *weight); });
        let total = tree.total();
        prop_assume!(total > 0.0);
        let mut points: Vec<f64> = at.iter().map(|at| at * total).collect();
        points.extend([0.0, f64::from_bits(total.to_bits() - 1), total, f64::from_bits(total.to_bits() + 1), 2.0 * total]);
        let single: Vec<_> = points.iter().map(|point| tree.find(*point)).collect();
        for (slot, weight) in &single {
            prop_assert!(*weight > 0.0);
            prop_assert_eq!(*weight, tree.get(*slot));
        }
        let mut many = Vec::new();
        tree.find_many(&mut points, |slot, weight| many.push((slot, weight)));
        prop_assert_eq!(many, single);
    }
}

#[test]
fn a_long_random_walk_leaves_no_drift() {
    let mut tree = SumTree::new();
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..300_000 {
        // Weights thirty orders of magnitude apart: adding and subtracting would lose the small ones at once.
        let slot = (next() % 1_000) as u32;
        tree.set(slot, 10_f64.powi((next() % 30) as i32));
    }
    assert_consistent(&mut tree);
    (0..1_000).for_each(|slot| {
        tree.set(slot, 0.1);
    });
    assert!((tree.total() - 100.0).abs() < 1e-11, "the sum of a thousand tenths is {}", tree.total());
    (0..1_000).for_each(|slot| {
        tree.set(slot, 0.0);
    });
    assert_eq!((tree.total(), tree.smallest(), tree.largest()), (0.0, None, None));
}

#[test]
fn a_tree_that_grows_by_levels_keeps_the_weights_that_it_had() {
    let mut tree = SumTree::new();
    for (before, slot) in [0, 8, 64, 512, 4_096].into_iter().enumerate() {
        tree.set(slot, 1.0);
        assert_eq!(tree.total(), before as f64 + 1.0);
        assert_consistent(&mut tree);
    }
}

#[test]
fn the_last_slot_with_weight_takes_what_rounding_puts_behind_the_end() {
    let mut tree = SumTree::new();
    (0..64).for_each(|slot| {
        tree.set(slot, if slot < 43 { 0.1 } else { 0.0 });
    });
    let past_the_end = tree.total() * 2.0;
    assert_eq!(tree.find(past_the_end), (42, 0.1));
}

#[test]
fn a_node_is_one_cache_line_and_a_branch_four_with_the_running_sums_first() {
    assert_eq!((size_of::<SumNode>(), align_of::<SumNode>()), (64, 64));
    assert_eq!((size_of::<Branch>(), std::mem::offset_of!(Branch, prefixes)), (256, 0));
}
