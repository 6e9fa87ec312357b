//! Tables that evict an item for each insert, at their server's limit of bytes.

use super::support::{bounded_tables, options, queue, row_of};
use reverie_core::error::Error;
use reverie_core::item::Key;
use reverie_core::sample::SampleRequest;
use reverie_core::table::{Change, Lessee, Tables};
use std::sync::Arc;

const LIMIT: u64 = 100_000;
/// Bytes of an item; a chunk has a little for its header more.
const ITEM: usize = 9_000;

fn insert(tables: &Arc<Tables>, table: &str, bytes: usize) -> Result<(), Error> {
    let mut ticket = tables.get(table).unwrap().insert(row_of(tables, bytes))?;
    ticket.poll().expect("it is done or refused at once").map(|_| ())
}

fn held(tables: &Arc<Tables>) -> u64 {
    tables.bytes().0.table_bytes()
}

#[test]
fn a_full_table_whose_items_become_larger_exceeds_the_limit_by_one_item_at_most() {
    let (tables, _) = bounded_tables(vec![options("t", 50)], Some(LIMIT));
    (0..50).for_each(|_| insert(&tables, "t", 10).unwrap());
    let refused = (0..200).find_map(|_| insert(&tables, "t", ITEM).err()).expect("the items do not fit");
    assert!(matches!(&refused, Error::ResourceExhausted { .. }), "{refused}");
    assert!((LIMIT..LIMIT + 2 * ITEM as u64).contains(&held(&tables)), "{}", held(&tables));
    insert(&tables, "t", 10).unwrap();
    assert!((LIMIT..LIMIT + 2 * ITEM as u64).contains(&held(&tables)), "smaller items go in: {}", held(&tables));
    tables.get("t").unwrap().configure(Change { max_size: Some(5), ..Change::default() }).unwrap();
    (0..20).for_each(|_| insert(&tables, "t", ITEM).unwrap());
}

#[test]
fn full_tables_exchange_items_of_one_size_at_the_limit_for_ever() {
    let (tables, _) = bounded_tables(vec![options("a", 5), options("b", 5)], Some(LIMIT));
    for _ in 0..50 {
        insert(&tables, "a", ITEM).unwrap();
        insert(&tables, "b", ITEM).unwrap();
    }
    assert!(held(&tables) > LIMIT - ITEM as u64, "one more item has no room");
}

#[test]
fn a_table_goes_on_at_its_size_when_another_has_exceeded_the_limit() {
    let (tables, _) = bounded_tables(vec![options("a", 5), options("b", 5)], Some(LIMIT));
    (0..5).for_each(|_| insert(&tables, "a", ITEM).unwrap());
    (0..5).for_each(|_| insert(&tables, "b", ITEM).unwrap());
    insert(&tables, "b", 2 * ITEM).unwrap();
    assert!(held(&tables) > LIMIT);
    (0..20).for_each(|_| insert(&tables, "a", ITEM).unwrap());
    assert!((0..20).any(|_| insert(&tables, "a", 2 * ITEM).is_err()));
    assert!(held(&tables) < LIMIT + 5 * ITEM as u64, "two items each: {}", held(&tables));
}

/// A large item, which then leaves its table in one of these ways.
#[derive(Clone, Copy, Debug)]
enum Departure {
    Evicted,
    Reset,
    Deleted,
    Stays,
}

/// The bytes at which three full tables stop to grow, after one of them had a large item.
fn held_at_the_end(leaves: Departure) -> u64 {
    let (tables, _) = bounded_tables(["a", "b", "c"].map(|name| options(name, 5)).to_vec(), Some(LIMIT));
    insert(&tables, "a", 90_000).unwrap();
    let a = tables.get("a").unwrap();
    match leaves {
        Departure::Evicted => (0..5).for_each(|_| insert(&tables, "a", 10).unwrap()),
        Departure::Reset => drop(a.reset()),
        Departure::Deleted => {
            let keys: Vec<i64> = a.cut().iter().map(|(slot, of, _)| Key::new(0, of.generation, slot).get()).collect();
            a.delete(&keys).unwrap();
        }
        Departure::Stays => a.configure(Change { max_size: Some(1), ..Change::default() }).unwrap(),
    }
    let grown: &[&str] = if matches!(leaves, Departure::Stays) { &["b", "c"] } else { &["a", "b", "c"] };
    grown.iter().for_each(|table| (0..5).for_each(|_| insert(&tables, table, 10).unwrap()));
    let refused = (1..200).find_map(|n| grown.iter().find_map(|table| insert(&tables, table, n * 1_000).err()));
    assert!(matches!(refused, Some(Error::ResourceExhausted { .. })));
    held(&tables)
}

#[test]
fn a_large_item_that_has_left_its_table_does_not_loosen_the_limit() {
    for leaves in [Departure::Evicted, Departure::Reset, Departure::Deleted] {
        let held = held_at_the_end(leaves);
        assert!((LIMIT..LIMIT + 4 * ITEM as u64).contains(&held), "{leaves:?}: {held}");
    }
    assert!(held_at_the_end(Departure::Stays) > LIMIT + 60_000, "one that is there does");
}

#[test]
fn full_tables_go_on_with_their_usual_items_after_large_ones() {
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let usual = 96_000 / 5 / names.len();
        let (tables, _) = bounded_tables(names.iter().map(|name| options(name, 5)).collect(), Some(LIMIT));
        let all = |bytes| names.iter().try_for_each(|name| insert(&tables, name, bytes));
        (0..5).for_each(|_| all(usual).unwrap());
        for _ in 0..3 {
            names.iter().for_each(|name| _ = insert(&tables, name, 30_000));
            (0..3).for_each(|_| all(usual).and_then(|()| all(10)).and_then(|()| all(usual)).unwrap());
            assert!(held(&tables) < LIMIT + (names.len() * 31_000) as u64, "{}", held(&tables));
        }
    }
}

#[test]
fn a_full_table_whose_items_keep_their_chunks_in_another_table_does_not_grow_it() {
    let (tables, _) = bounded_tables(vec![options("ring", 1), options("all", 1_000)], Some(LIMIT));
    let (ring, all) = (tables.get("ring").unwrap(), tables.get("all").unwrap());
    let refused = (0..100).find_map(|_| {
        let both = row_of(&tables, ITEM);
        ring.insert(both.clone()).err().or_else(|| all.insert(both).err())
    });
    assert!(refused.is_some() && held(&tables) < LIMIT + 2 * ITEM as u64, "{}", held(&tables));
}

#[test]
fn items_that_their_reader_has_not_acknowledged_are_no_bytes_that_an_insert_waits_for() {
    let (tables, _) = bounded_tables(vec![queue("q", 100), options("t", 100)], Some(LIMIT));
    insert(&tables, "q", ITEM).unwrap();
    let lessee = Some(Lessee { sender: [7; 16], request: 1 });
    let request = SampleRequest { num_samples: 1, lessee, ..SampleRequest::default() };
    let draws = tables.get("q").unwrap().sample(request).unwrap().poll().unwrap().unwrap();
    assert_eq!(tables.get("q").unwrap().why().leased, 1);
    let refused = (0..100).find_map(|_| insert(&tables, "t", ITEM).err());
    assert!(matches!(refused, Some(Error::ResourceExhausted { .. })));
    drop(draws);
}
