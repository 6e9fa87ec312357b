//! A table whose draws are leased, next to a twin: one on which they were not made, or were made for good.

use super::leases::{LESSEE, bare, values};
use super::support::{options, queue_limiter, ratio_limiter};
use proptest::prelude::*;
use reverie_core::item::Key;
use reverie_core::sample::Draws;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Table, TableOptions};

/// An operation between a draw and the end of its lease.
#[derive(Clone, Debug)]
enum Op {
    Insert(f64),
    Lease(usize),
    /// Gives back the lease at that index (modulo).
    ReturnDraws(usize),
    /// Draws that are acknowledged at once.
    Draw(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4_u8).prop_map(|p| Op::Insert(f64::from(p))),
        3 => (1..4_usize).prop_map(Op::Lease),
        3 => (0..9_usize).prop_map(Op::ReturnDraws),
        2 => (1..3_usize).prop_map(Op::Draw),
    ]
}

fn sampler() -> impl Strategy<Value = SelectorOptions> {
    use SelectorOptions::{Fifo, Lifo, MaxHeap, MinHeap};
    prop_oneof![Just(Fifo), Just(Lifo), Just(MaxHeap), Just(MinHeap)]
}

fn limiter() -> impl Strategy<Value = Limiter> {
    prop_oneof![Just(Limiter::min_size(1).unwrap()), Just(queue_limiter(6)), Just(ratio_limiter(2.0, 2, 6.0)),]
}

/// The values in the order in which they come, without a limiter.
fn order(table: &mut Table) -> Vec<f64> {
    let limiter = Some(Limiter::min_size(1).unwrap());
    table.configure(Change { limiter, ..Default::default() }).unwrap();
    let mut all = Draws::default();
    table.draw(10_000, 0, &mut all);
    values(&all)
}

fn same(table: &mut Table, twin: &mut Table) -> Result<(), TestCaseError> {
    prop_assert_eq!(table.leased(), 0);
    prop_assert_eq!(table.counters(), twin.counters());
    prop_assert_eq!(
        (table.len(), table.bytes(), table.num_episodes()),
        (twin.len(), twin.bytes(), twin.num_episodes())
    );
    let counts =
        |table: &Table| (table.stats().sampled_present, table.stats().single_steps, table.stats().deleted_episodes);
    prop_assert_eq!(counts(table), counts(twin));
    prop_assert_eq!(order(table), order(twin));
    let _ = (table.take_dropped(), twin.take_dropped());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A table whose leased draws all come back, in any order, next to one on which they were never made.
    #[test]
    fn a_table_whose_leases_came_back_is_as_if_they_had_never_been_drawn(
        ops in prop::collection::vec(op(), 1..80),
        sampler in sampler(),
        limiter in limiter(),
        max_times_sampled in 1..3_u32,
    ) {
        let options = TableOptions { sampler, limiter, max_times_sampled, ..options("t", 12) };
        let (mut table, mut rows) = bare(options.clone());
        let mut twin = Table::new(options, 3).unwrap();
        let mut leases: Vec<Vec<Key>> = Vec::new();
        let mut value = 0.0;
        for op in ops {
            match op {
                // The table gets no insert that the twin cannot take yet: the table may take more while draws are out.
                Op::Insert(priority) if twin.can_insert() => {
                    prop_assert!(table.can_insert());
                    value += 1.0;
                    table.insert(rows.item(value), priority, 0);
                    twin.insert(rows.item(value), priority, 0);
                }
                Op::Insert(_) => {}
                Op::Lease(n) => {
                    let mut draws = Draws { lessee: Some(LESSEE), ..Draws::default() };
                    table.draw(n, 0, &mut draws);
                    leases.push(draws.keys);
                }
                Op::ReturnDraws(at) if !leases.is_empty() => {
                    table.return_draws(&LESSEE, &leases.swap_remove(at % leases.len()));
                }
                Op::ReturnDraws(_) | Op::Draw(_) => {}
            }
            let _ = (table.take_dropped(), twin.take_dropped());
        }
        leases.drain(..).for_each(|keys| table.return_draws(&LESSEE, &keys));
        // Items that came back beyond the bounds leave with the next change.
        table.configure(Default::default()).unwrap();
        same(&mut table, &mut twin)?;
    }

    /// A table whose draws are leased and acknowledged, next to one that draws as ever.
    #[test]
    fn a_table_whose_leases_are_acknowledged_is_as_if_they_had_been_plain_draws(
        ops in prop::collection::vec(op(), 1..80),
        sampler in sampler(),
        limiter in limiter(),
        max_times_sampled in 1..3_u32,
    ) {
        let options = TableOptions { sampler, limiter, max_times_sampled, ..options("t", 12) };
        let (mut table, mut rows) = bare(options.clone());
        let mut twin = Table::new(options, 3).unwrap();
        let mut value = 0.0;
        for op in ops {
            match op {
                Op::Insert(priority) if table.can_insert() => {
                    prop_assert!(twin.can_insert());
                    value += 1.0;
                    let key = table.insert(rows.item(value), priority, 0);
                    prop_assert_eq!(twin.insert(rows.item(value), priority, 0), key);
                }
                Op::Insert(_) => prop_assert!(!twin.can_insert()),
                Op::Lease(n) | Op::ReturnDraws(n) | Op::Draw(n) => {
                    let mut draws = Draws { lessee: Some(LESSEE), ..Draws::default() };
                    let mut plain = Draws::default();
                    table.draw(n, 0, &mut draws);
                    twin.draw(n, 0, &mut plain);
                    prop_assert_eq!(&draws.keys, &plain.keys);
                    prop_assert_eq!(&draws.table_sizes, &plain.table_sizes);
                    table.acknowledge(&LESSEE, &draws.keys);
                }
            }
            let _ = (table.take_dropped(), twin.take_dropped());
        }
        same(&mut table, &mut twin)?;
    }
}
