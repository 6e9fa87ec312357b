//! Every selector against a list that is searched from end to end.

use super::support::cases::cases;
use proptest::prelude::*;
use reverie_core::table::selector::{AnySelector, Pick, Selector, SelectorOptions};

const ALL: [SelectorOptions; 12] = [
    SelectorOptions::Fifo,
    SelectorOptions::Lifo,
    SelectorOptions::Uniform,
    SelectorOptions::MaxHeap,
    SelectorOptions::MinHeap,
    SelectorOptions::Prioritized { exponent: 0.0 },
    SelectorOptions::Prioritized { exponent: 0.5 },
    SelectorOptions::Prioritized { exponent: 0.6 },
    SelectorOptions::Prioritized { exponent: 1.0 },
    SelectorOptions::Prioritized { exponent: 3.0 },
    SelectorOptions::Prioritized { exponent: -0.4 },
    SelectorOptions::Stratified { exponent: 0.6 },
];

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, f64),
    Update(usize, f64),
    UpdateMany(Vec<(usize, f64)>),
    Remove(usize),
    Draw,
    DrawMany(usize),
    Clear,
}

fn priority() -> impl Strategy<Value = f64> {
    // Few different values, so that ties and zeros are common; and some that strain the arithmetic.
    prop_oneof![
        3 => Just(0.0),
        1 => Just(-0.0),
        4 => (1..4_u32).prop_map(f64::from),
        4 => 1e-3..1e3,
        1 => prop_oneof![Just(1e-200), Just(5e-324), Just(1e120), Just(1e300)],
        2 => -3.0..0.0,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly few slots, so that they are reused; some far out, so that a tree gains levels.
    let slot = prop_oneof![8 => 0..40_u32, 2 => 0..700_u32, 1 => 0..9_000_u32];
    let some = any::<proptest::sample::Index>().prop_map(|index| index.index(1 << 20));
    prop_oneof![
        10 => (slot, priority()).prop_map(|(slot, priority)| Step::Insert(slot, priority)),
        4 => (some.clone(), priority()).prop_map(|(item, priority)| Step::Update(item, priority)),
        2 => prop::collection::vec((some.clone(), priority()), 0..40).prop_map(Step::UpdateMany),
        5 => some.prop_map(Step::Remove),
        3 => Just(Step::Draw),
        2 => (0..270_usize).prop_map(Step::DrawMany),
        1 => prop::bool::weighted(0.2).prop_map(|clear| if clear { Step::Clear } else { Step::Draw }),
    ]
}

#[derive(Clone, Debug)]
struct Entry {
    slot: u32,
    priority: f64,
    touched: u64,
}

/// The items in order of insertion.
struct Model {
    options: SelectorOptions,
    items: Vec<Entry>,
    clock: u64,
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn update(&mut self, index: usize, priority: f64) {
        let touched = self.tick();
        let item = &mut self.items[index];
        (item.priority, item.touched) = (priority, touched);
    }

    /// Relative weights of the items for the next draw.
    fn weights(&self) -> Vec<f64> {
        let only = |chosen: Option<u32>| self.items.iter().map(|item| f64::from(chosen == Some(item.slot))).collect();
        let best = |sign: f64| {
            let order = |a: &&Entry, b: &&Entry| {
                (sign * a.priority).partial_cmp(&(sign * b.priority)).unwrap().then(a.touched.cmp(&b.touched))
            };
            self.items.iter().min_by(order).map(|item| item.slot)
        };
        match self.options {
            SelectorOptions::Fifo => only(self.items.first().map(|item| item.slot)),
            SelectorOptions::Lifo => only(self.items.last().map(|item| item.slot)),
            SelectorOptions::Uniform => vec![1.0; self.items.len()],
            SelectorOptions::MaxHeap => only(best(-1.0)),
            SelectorOptions::MinHeap => only(best(1.0)),
            SelectorOptions::Prioritized { exponent } | SelectorOptions::Stratified { exponent } => {
                self.powers(exponent)
            }
        }
    }

    fn powers(&self, exponent: f64) -> Vec<f64> {
        let zeros: Vec<f64> = self.items.iter().map(|item| f64::from(item.priority == 0.0)).collect();
        let any_zero = zeros.contains(&1.0);
        let all_zero = !zeros.contains(&0.0);
        if exponent != 0.0 && (all_zero || exponent < 0.0 && any_zero) {
            return zeros;
        }
        let weight = |priority: f64| match priority {
            _ if exponent == 0.0 => 1.0,
            0.0 => 0.0,
            _ => priority.powf(exponent).clamp(f64::MIN_POSITIVE, 2_f64.powi(990)),
        };
        self.items.iter().map(|item| weight(item.priority)).collect()
    }

    /// Slot and probability of every item that can be drawn.
    fn probabilities(&self) -> Vec<(u32, f64)> {
        let weights = self.weights();
        let sum: f64 = weights.iter().sum();
        let all = self.items.iter().zip(weights).map(|(item, weight)| (item.slot, weight / sum, weight));
        all.filter(|(_, _, weight)| *weight > 0.0).map(|(slot, probability, _)| (slot, probability)).collect()
    }
}

fn close(a: f64, b: f64) -> bool {
    // Sums of up to a few thousand terms in different orders.
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs()) + 1e-300
}

fn check_pick(pick: &Pick, possible: &[(u32, f64)]) -> Result<(), TestCaseError> {
    let found = possible.iter().find(|(slot, _)| *slot == pick.slot);
    let Some((slot, probability)) = found else {
        return Err(TestCaseError::fail(format!("{pick:?} cannot be drawn from {possible:?}")));
    };
    prop_assert!(close(pick.probability, *probability), "slot {} has probability {}: {:?}", slot, probability, pick);
    Ok(())
}

fn check_state(selector: &mut AnySelector, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(selector.len(), model.items.len());
    prop_assert_eq!(selector.is_empty(), model.items.is_empty());
    let possible = model.probabilities();
    let smallest = possible.iter().map(|(_, probability)| *probability).reduce(f64::min);
    match (selector.smallest_probability(), smallest) {
        (Some(found), Some(wanted)) => prop_assert!(close(found, wanted), "smallest {} is {}", found, wanted),
        (found, wanted) => prop_assert_eq!(found, wanted),
    }
    let weights: f64 = model.weights().iter().sum();
    let mass = if matches!(model.options, SelectorOptions::Prioritized { .. } | SelectorOptions::Stratified { .. }) {
        weights
    } else {
        model.items.len() as f64
    };
    let (first, then) = selector.masses();
    prop_assert!(close(if first > 0.0 { first } else { then }, mass), "masses {} and {} are {}", first, then, mass);
    let knows_max = match model.options {
        SelectorOptions::MaxHeap => true,
        SelectorOptions::Prioritized { exponent } | SelectorOptions::Stratified { exponent } => exponent != 0.0,
        _ => false,
    };
    prop_assert_eq!(selector.max_slot().is_some(), knows_max && !model.items.is_empty());
    if let Some(slot) = selector.max_slot() {
        let largest = model.items.iter().map(|item| item.priority).fold(f64::NEG_INFINITY, f64::max);
        let found = model.items.iter().find(|item| item.slot == slot).map(|item| item.priority);
        let same_weight = |found: f64| match model.options {
            SelectorOptions::Prioritized { exponent } | SelectorOptions::Stratified { exponent } if found > 0.0 => {
                // Extreme priorities share the largest or the smallest weight.
                let weight = |priority: f64| priority.powf(exponent).clamp(f64::MIN_POSITIVE, 2_f64.powi(990));
                close(weight(found), weight(largest))
            }
            _ => found == largest,
        };
        prop_assert!(found.is_some_and(same_weight), "the largest of {:?} is not in slot {}", model.items, slot);
    }
    Ok(())
}

fn apply(step: &Step, selector: &mut AnySelector, model: &mut Model) -> Result<(), TestCaseError> {
    let fit = |priority: f64| if selector.check(priority).is_ok() { priority } else { -priority };
    match step {
        Step::Insert(slot, priority) if model.items.iter().all(|item| item.slot != *slot) => {
            let priority = fit(*priority);
            selector.insert(*slot, priority);
            let touched = model.tick();
            model.items.push(Entry { slot: *slot, priority, touched });
        }
        Step::Update(item, priority) if !model.items.is_empty() => {
            let (index, priority) = (item % model.items.len(), fit(*priority));
            selector.update(model.items[index].slot, priority);
            model.update(index, priority);
        }
        Step::UpdateMany(updates) if !model.items.is_empty() => {
            let updates: Vec<_> =
                updates.iter().map(|(item, priority)| (item % model.items.len(), fit(*priority))).collect();
            let slots: Vec<_> = updates.iter().map(|(index, priority)| (model.items[*index].slot, *priority)).collect();
            selector.update_many(&slots);
            updates.iter().for_each(|(index, priority)| model.update(*index, *priority));
        }
        Step::Remove(item) if !model.items.is_empty() => {
            let item = model.items.remove(item % model.items.len());
            selector.remove(item.slot);
        }
        Step::Clear => {
            selector.clear();
            model.items.clear();
        }
        Step::Draw => match selector.draw() {
            Some(pick) => check_pick(&pick, &model.probabilities())?,
            None => prop_assert!(model.items.is_empty()),
        },
        Step::DrawMany(n) => {
            let mut twin = selector.clone();
            let mut many = vec![Pick { slot: 7, probability: 0.5 }];
            selector.draw_many(*n, &mut many);
            prop_assert_eq!(many.len() - 1, if model.items.is_empty() { 0 } else { *n });
            // The draws of a stratified selector depend on how many there are.
            if !matches!(model.options, SelectorOptions::Stratified { .. }) {
                let single: Vec<_> = (0..*n).filter_map(|_| twin.draw()).collect();
                prop_assert_eq!(&many[1..], &single[..]);
                prop_assert_eq!(selector.clone().draw(), twin.draw(), "as many random numbers were used");
            }
            let possible = model.probabilities();
            many[1..].iter().try_for_each(|pick| check_pick(pick, &possible))?;
        }
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_selector_does_what_the_searched_list_does(
        which in 0..ALL.len(), seed: u64, steps in prop::collection::vec(step(), 1..80),
    ) {
        let options = ALL[which];
        let mut selector = AnySelector::new(&options, seed);
        let mut model = Model { options, items: Vec::new(), clock: 0 };
        for step in &steps {
            apply(step, &mut selector, &mut model)?;
            // Not every time: what a selector puts off until it is asked must come out right later, too.
            if model.items.len().is_multiple_of(3) {
                check_state(&mut selector, &model)?;
            }
        }
    }
}

fn slots(selector: &mut AnySelector, n: usize) -> Vec<u32> {
    let mut picks = Vec::new();
    selector.draw_many(n, &mut picks);
    picks.iter().map(|pick| pick.slot).collect()
}

fn filled(options: &SelectorOptions, seed: u64) -> AnySelector {
    let mut selector = AnySelector::new(options, seed);
    (0..1_000).for_each(|slot| selector.insert(slot, f64::from(slot % 7) + 0.5));
    selector
}

#[test]
fn a_seed_fixes_the_draws() {
    for options in [SelectorOptions::Uniform, SelectorOptions::Prioritized { exponent: 0.6 }] {
        assert_eq!(slots(&mut filled(&options, 5), 300), slots(&mut filled(&options, 5), 300));
        assert_ne!(slots(&mut filled(&options, 5), 300), slots(&mut filled(&options, 6), 300));
    }
    // These change with a major version only.
    assert_eq!(slots(&mut filled(&SelectorOptions::Uniform, 5), 5), UNIFORM_OF_SEED_5);
    assert_eq!(slots(&mut filled(&SelectorOptions::Prioritized { exponent: 0.6 }, 5), 5), PRIORITIZED_OF_SEED_5);
}

const UNIFORM_OF_SEED_5: [u32; 5] = [292, 611, 97, 58, 527];
const PRIORITIZED_OF_SEED_5: [u32; 5] = [292, 612, 97, 59, 527];

#[test]
fn clearing_keeps_the_random_state() {
    for options in [SelectorOptions::Uniform, SelectorOptions::Prioritized { exponent: 0.6 }] {
        let mut cleared = filled(&options, 5);
        let all = slots(&mut filled(&options, 5), 200);
        assert_eq!(slots(&mut cleared, 100), all[..100]);
        cleared.clear();
        assert_eq!((cleared.len(), cleared.draw()), (0, None));
        (0..1_000).for_each(|slot| cleared.insert(slot, f64::from(slot % 7) + 0.5));
        assert_eq!(slots(&mut cleared, 100), all[100..]);
    }
}

#[test]
fn priorities_without_meaning_are_refused() {
    for options in ALL {
        let selector = AnySelector::new(&options, 0);
        for priority in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let reason = selector.check(priority).expect_err("no selector takes this").to_string();
            assert_eq!(reason, format!("a priority must be a finite number, got {priority}"));
        }
        let is_prioritized =
            matches!(options, SelectorOptions::Prioritized { .. } | SelectorOptions::Stratified { .. });
        assert_eq!(selector.check(-1.5).is_err(), is_prioritized, "{options}");
        assert!([0.0, -0.0, 1e300, 5e-324].iter().all(|priority| selector.check(*priority).is_ok()), "{options}");
    }
    let reason =
        AnySelector::new(&SelectorOptions::Prioritized { exponent: 1.0 }, 0).check(-1.5).unwrap_err().to_string();
    assert_eq!(reason, "a priority of a Prioritized selector must not be negative, got -1.5");
}

#[test]
fn options_say_what_they_are() {
    let names: Vec<String> = ALL.iter().map(ToString::to_string).collect();
    assert_eq!(names[..5], ["Fifo()", "Lifo()", "Uniform()", "MaxHeap()", "MinHeap()"]);
    assert_eq!(names[7], "Prioritized(0.6)");
    let deterministic: Vec<bool> = ALL.iter().map(SelectorOptions::is_deterministic).collect();
    assert_eq!(deterministic[..6], [true, true, false, true, true, false]);
    assert!(ALL.iter().all(|options| options.validate().is_ok()));
    for exponent in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let reason = SelectorOptions::Prioritized { exponent }.validate().unwrap_err().to_string();
        assert_eq!(reason, format!("priority_exponent must be a finite number, got {exponent}"));
    }
}

#[test]
fn a_heap_gives_the_item_touched_longest_ago_among_equal_priorities() {
    for options in [SelectorOptions::MaxHeap, SelectorOptions::MinHeap] {
        let mut heap = AnySelector::new(&options, 0);
        [8, 3, 5].iter().for_each(|slot| heap.insert(*slot, 1.0));
        let mut order = Vec::new();
        heap.update(8, 1.0);
        while let Some(pick) = heap.draw() {
            assert_eq!(pick.probability, 1.0);
            order.push(pick.slot);
            heap.remove(pick.slot);
        }
        assert_eq!(order, [3, 5, 8], "{options}: an update to the same priority counts as new");
    }
}

#[test]
fn weights_stay_positive_and_finite_where_the_power_would_not() {
    let mut steep = AnySelector::new(&SelectorOptions::Prioritized { exponent: 40.0 }, 0);
    steep.insert(0, 1e-300);
    assert_eq!(steep.draw().map(|pick| (pick.slot, pick.probability)), Some((0, 1.0)));
    (1..1_000).for_each(|slot| steep.insert(slot, 1e300));
    let pick = steep.draw().expect("there are items");
    assert!(steep.masses().0.is_finite() && (pick.probability - 1.0 / 999.0).abs() < 1e-15, "{pick:?}");
    assert!(steep.smallest_probability().is_some_and(|probability| probability > 0.0));
}

#[test]
fn an_item_that_takes_the_place_of_one_removed_from_a_heap_rises_where_it_belongs_higher() {
    for (options, sign) in [(SelectorOptions::MinHeap, 1.0), (SelectorOptions::MaxHeap, -1.0)] {
        let mut heap = AnySelector::new(&options, 0);
        // Wide below one child of the root, and narrow below the next: the last item is of the second family.
        let ranks = [1.0, 100.0, 2.0, 50.0, 60.0, 101.0, 102.0, 103.0, 104.0, 3.0, 4.0, 5.0, 6.0];
        ranks.iter().enumerate().for_each(|(slot, rank)| heap.insert(slot as u32, sign * rank));
        heap.remove(6);
        let mut order = Vec::new();
        while let Some(pick) = heap.draw() {
            order.push(ranks[pick.slot as usize]);
            heap.remove(pick.slot);
        }
        assert_eq!(order, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 50.0, 60.0, 100.0, 101.0, 103.0, 104.0]);
    }
}
