//! The table against a model that is too simple to be wrong, over random sequences of operations.

use super::naive::{Entry, Model};
use super::support;
use super::support::cases::cases;
use super::support::{Rows, f64_of, options, queue_limiter};
use proptest::prelude::*;
use reverie_core::item::Key;
use reverie_core::sample::Draws;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Table, TableOptions, Tables, Updates};
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Insert(f64),
    Draw(usize),
    DrawDistinct(usize),
    /// Updates the item at that index (modulo), or a key that is gone.
    Update(usize, f64),
    UpdateIfVersion(usize, f64, u32),
    Delete(usize),
    Reset,
    Resize(u64),
}

struct Pair {
    table: Table,
    model: Model,
    rows: Rows,
    next_value: f64,
    now: u64,
}

impl Pair {
    fn new(options: TableOptions) -> Self {
        // Only the writer's chunks are made through these tables.
        let (sink, _) = support::tables(vec![support::options("chunks", 1)]);
        let sink: Arc<Tables> = sink;
        let model = Model {
            sampler: options.sampler,
            remover: options.remover,
            max_size: options.max_size as usize,
            max_times: options.max_times_sampled,
            limiter: options.limiter,
            entries: vec![],
            gone: vec![],
            order: 0,
            inserts: 0,
            samples: 0,
            deletes: 0,
        };
        Self { table: Table::new(options, 99).unwrap(), model, rows: Rows::new(&sink), next_value: 0.0, now: 0 }
    }

    fn key(&self, pick: usize) -> i64 {
        let Model { entries, gone, .. } = &self.model;
        let all = entries.len() + gone.len();
        if all == 0 {
            return 12345;
        }
        let pick = pick % all;
        entries.get(pick).map_or_else(|| gone[pick - entries.len()], |entry| entry.key)
    }

    /// Items that come and go at once, so many that their slots are used again.
    fn churn(&mut self, pairs: usize) -> Result<(), TestCaseError> {
        let item = self.rows.item(-1.0);
        for _ in 0..pairs {
            let key = self.table.insert(item.clone(), 1.0, self.now).get();
            prop_assert_eq!(self.table.delete(&[key]).applied, 1);
            drop(self.table.take_dropped());
            let model = &mut self.model;
            model.gone.push(key);
            (model.order, model.inserts, model.deletes) = (model.order + 1, model.inserts + 1, model.deletes + 1);
            model.samples += model.draws_not_made();
        }
        self.compare()
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.now += 1;
        self.model.order += 1;
        match op {
            Op::Insert(priority) => self.insert(*priority)?,
            Op::Draw(n) => self.draw(*n, false)?,
            Op::DrawDistinct(n) if !self.model.sampler.is_deterministic() => self.draw(*n, true)?,
            Op::DrawDistinct(_) => {
                prop_assert!(self.table.draw_distinct(1, self.now, &mut Draws::default()).is_err());
            }
            Op::Update(pick, priority) => self.update(*pick, *priority, None)?,
            Op::UpdateIfVersion(pick, priority, version) => self.update(*pick, *priority, Some(*version))?,
            Op::Delete(pick) => {
                let key = self.key(*pick);
                let done = self.table.delete(&[key]);
                let found = self.model.entries.iter().position(|entry| entry.key == key);
                prop_assert_eq!(done.applied, u64::from(found.is_some()));
                if let Some(index) = found {
                    self.model.delete(index);
                }
            }
            Op::Reset => {
                self.table.reset(self.now * 7919);
                let model = &mut self.model;
                model.gone.extend(model.entries.drain(..).map(|entry| entry.key));
                (model.inserts, model.samples, model.deletes) = (0, 0, 0);
            }
            Op::Resize(max_size) => {
                self.table.configure(Change { max_size: Some(*max_size), ..Change::default() }).unwrap();
                self.model.max_size = *max_size as usize;
                self.model.follow_evictions(&self.table)?;
            }
        }
        drop(self.table.take_dropped());
        self.compare()
    }

    fn insert(&mut self, priority: f64) -> Result<(), TestCaseError> {
        let allowed = self.model.limiter.can_insert(&self.model.counters(), 1);
        prop_assert_eq!(allowed, self.table.can_insert());
        if !allowed {
            return Ok(());
        }
        let value = self.next_value;
        self.next_value += 1.0;
        let item = self.rows.item(value);
        self.table.check(&item, priority).unwrap();
        let key = self.table.insert(item, priority, self.now).get();
        prop_assert!(key >= 0);
        prop_assert!(self.model.entries.iter().all(|entry| entry.key != key), "a key was given out twice");
        prop_assert!(!self.model.gone.contains(&key), "a stale key came back");
        let order = self.model.order;
        let entry = Entry { value, key, priority, times: 0, version: 0, inserted: order, updated: order };
        self.model.entries.push(entry);
        self.model.inserts += 1;
        self.model.follow_evictions(&self.table)
    }

    fn draw(&mut self, wanted: usize, distinct: bool) -> Result<(), TestCaseError> {
        let mut draws = Draws::default();
        let made = match distinct {
            false => self.table.draw(wanted, self.now, &mut draws),
            true => self.table.draw_distinct(wanted, self.now, &mut draws).unwrap(),
        };
        prop_assert_eq!(made, draws.len());
        for index in 0..made {
            prop_assert!(self.model.limiter.can_sample(&self.model.counters(), 1), "a draw that the limiter forbids");
            let key = draws.keys[index].get();
            let found = self.model.entries.iter().position(|entry| entry.key == key);
            prop_assert!(found.is_some(), "a draw of an item that is not there");
            let found = found.unwrap();
            let entry = self.model.entries[found].clone();
            if let (Some(chosen), false) = (self.model.chosen(&self.model.sampler), distinct) {
                prop_assert_eq!(found, chosen);
            }
            if !distinct {
                prop_assert!((draws.probabilities[index] - self.model.probability(&entry)).abs() < 1e-9);
            } else {
                prop_assert!(!draws.keys[..index].contains(&draws.keys[index]), "an item twice in a batch");
            }
            prop_assert_eq!(draws.table_sizes[index], self.model.entries.len() as u64);
            prop_assert_eq!(draws.priorities[index], entry.priority);
            prop_assert_eq!(draws.times_sampled[index], entry.times + 1);
            prop_assert_eq!(draws.versions[index], entry.version);
            prop_assert_eq!(f64_of(&draws.items[index]), entry.value);
            self.model.samples += 1;
            self.model.entries[found].times += 1;
            if self.model.max_times > 0 && self.model.entries[found].times >= self.model.max_times {
                self.model.remove(found);
            }
        }
        if !distinct && made < wanted {
            let empty = self.model.entries.is_empty();
            prop_assert!(empty || !self.model.limiter.can_sample(&self.model.counters(), 1), "a draw was withheld");
        }
        Ok(())
    }

    fn update(&mut self, pick: usize, priority: f64, version: Option<u32>) -> Result<(), TestCaseError> {
        let key = self.key(pick);
        let versions = version.map(|version| [version]);
        let if_version = versions.as_ref().map(|versions| versions.as_slice());
        let updates = Updates { keys: &[key], priorities: &[priority], if_version, neighbours: None };
        let done = self.table.update(&updates).unwrap();
        let order = self.model.order;
        let found = self.model.entries.iter_mut().find(|e| e.key == key && version.is_none_or(|v| v == e.version));
        prop_assert_eq!(done.applied, u64::from(found.is_some()));
        prop_assert_eq!(done.applied + done.stale, 1);
        if let Some(entry) = found {
            (entry.priority, entry.updated) = (priority, order);
            entry.version += 1;
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let Model { entries, inserts, samples, deletes, .. } = &self.model;
        prop_assert_eq!(self.table.len(), entries.len());
        prop_assert_eq!(self.table.counters().inserts, *inserts);
        prop_assert_eq!(self.table.counters().samples, *samples);
        prop_assert_eq!(self.table.counters().deletes, *deletes);
        prop_assert_eq!(self.table.num_episodes(), entries.len() as u64);
        let keys: Vec<i64> = entries.iter().map(|entry| entry.key).collect();
        let found = self.table.get(&keys).unwrap();
        if let Some(gone) = self.model.gone.get(self.now as usize * 7 % self.model.gone.len().max(1)) {
            prop_assert!(self.table.get(&[*gone]).is_err(), "a key of an item that is gone finds another");
        }
        for (index, entry) in entries.iter().enumerate() {
            prop_assert_eq!(f64_of(&found.items[index]), entry.value);
            prop_assert_eq!(found.priorities[index], entry.priority);
        }
        // Not every time: what the sampler puts off until it is asked must come out right later, too.
        if !self.now.is_multiple_of(3) {
            return Ok(());
        }
        let largest = entries.iter().map(|entry| entry.priority).fold(f64::NEG_INFINITY, f64::max);
        prop_assert_eq!(self.table.max_priority(), if entries.is_empty() { 1.0 } else { largest });
        Ok(())
    }
}

/// Every selector but the one whose draws are spread out: it is no remover.
fn selector() -> impl Strategy<Value = SelectorOptions> {
    (0..SelectorOptions::COUNT, prop_oneof![Just(0.6), Just(1.0), Just(0.0), Just(-0.4)])
        .prop_map(|(number, exponent)| SelectorOptions::from_parts(number, exponent).unwrap())
        .prop_filter("no remover", |options| !matches!(options, SelectorOptions::Stratified { .. }))
}

fn limiter() -> impl Strategy<Value = Limiter> {
    prop_oneof![
        (1..4_u64).prop_map(|n| Limiter::min_size(n).unwrap()),
        Just(queue_limiter(8)),
        (1..4_u64, 1..5_u64).prop_map(|(spi, min)| Limiter::new(
            spi as f64,
            min,
            -2.0 * spi as f64,
            (spi * min + 2 * spi) as f64
        )
        .unwrap()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let priority = || prop_oneof![3 => (0..6_u32).prop_map(f64::from), 1 => 0.001..100.0_f64];
    prop_oneof![
        8 => priority().prop_map(Op::Insert),
        5 => (1..5_usize).prop_map(Op::Draw),
        2 => (1..5_usize).prop_map(Op::DrawDistinct),
        4 => (any::<usize>(), priority()).prop_map(|(pick, p)| Op::Update(pick, p)),
        1 => (any::<usize>(), priority(), 0..3_u32).prop_map(|(pick, p, v)| Op::UpdateIfVersion(pick, p, v)),
        2 => any::<usize>().prop_map(Op::Delete),
        1 => Just(Op::Reset),
        1 => (8..14_u64).prop_map(Op::Resize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_does_what_a_naive_one_does(
        sampler in selector(),
        remover in selector(),
        limiter in limiter(),
        max_times_sampled in 0..4_u32,
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let options = TableOptions { sampler, remover, limiter, max_times_sampled, ..options("t", 8) };
        let mut pair = Pair::new(options);
        for op in &ops {
            pair.apply(op)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_whose_slots_are_used_again_does_what_a_naive_one_does(
        sampler in selector(),
        remover in selector(),
        max_times_sampled in 0..4_u32,
        // A slot is used again once two thousand others are free.
        pairs in prop_oneof![Just(300_usize), 2_040..2_060_usize, 4_090..4_110_usize],
        before in prop::collection::vec(op(), 1..40),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let limiter = Limiter::min_size(1).unwrap();
        let options = TableOptions { sampler, remover, limiter, max_times_sampled, ..options("t", 8) };
        let mut pair = Pair::new(options);
        // A reset would begin with new slots.
        for op in before.iter().filter(|op| !matches!(op, Op::Reset)) {
            pair.apply(op)?;
        }
        // Room for one more than there are, so that no other item leaves.
        pair.apply(&Op::Resize(14))?;
        while pair.model.entries.len() > 10 {
            pair.apply(&Op::Delete(0))?;
        }
        pair.churn(pairs)?;
        for op in &ops {
            pair.apply(op)?;
        }
    }
}

#[test]
fn keys_carry_shard_generation_and_slot_in_63_bits() {
    let key = Key::new(63, (1 << Key::GENERATION_BITS) - 1, (1 << Key::SLOT_BITS) - 1);
    assert_eq!(key.get(), i64::MAX);
    assert_eq!((key.shard(), key.generation(), key.slot()), (63, (1 << 29) - 1, (1 << 28) - 1));
    let key = Key::new(5, 77, 1234);
    assert_eq!((key.shard(), key.generation(), key.slot()), (5, 77, 1234));
}
