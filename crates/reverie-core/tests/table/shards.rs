//! A table as one of several shards: its tallies, the inserts that it is granted, and arrays of several as one.

use super::support::{Rows, options, tables};
use reverie_core::batch::{OutputArray, Ragged, Role, join, place};
use reverie_core::error::Error;
use reverie_core::sample::{SampleRequest, Source};
use reverie_core::spec::DType;
use reverie_core::table::Change;
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::{Mass, SelectorOptions};
use std::mem::MaybeUninit;

#[test]
fn a_rationed_table_takes_what_it_is_granted_and_reports_why_not_more() {
    let shard = reverie_core::table::TableOptions { limiter: Limiter::rationed(), shard: 5, ..options("t", 100) };
    let (tables, _) = tables(vec![shard]);
    let (table, mut rows) = (tables.get("t").unwrap(), Rows::new(&tables));
    let mut first = table.insert(rows.inserts(&[1.0, 2.0, 3.0])).unwrap();
    assert!(first.poll().is_none() && !table.can_insert(1));
    assert!(table.why().to_string().contains("was admitted no insert yet, it has 0"), "{}", table.why());
    assert!(!table.why().stuck);
    let tally = table.tally(None).unwrap();
    assert_eq!((tally.shard, tally.ration, tally.waiting_inserts, tally.size), (5, Some(0), 3, 0));

    let granted = table.tally(Some((tally.incarnation, 2))).unwrap();
    assert_eq!((granted.ration, granted.waiting_inserts, granted.size), (Some(2), 1, 2));
    assert!(table.why().to_string().contains("its ration is used up, 2 inserts of 2 admitted"), "{}", table.why());
    // Less than is there already is what is there; an order for another incarnation is none.
    assert_eq!(table.tally(Some((tally.incarnation, 1))).unwrap().ration, Some(2));
    assert_eq!(table.tally(Some((tally.incarnation + 1, 9))).unwrap().ration, Some(2));
    assert_eq!(table.tally(Some((tally.incarnation, 4))).unwrap().size, 3);
    assert_eq!(first.poll().unwrap().unwrap()[0].shard(), 5);
    assert!(table.can_insert(1) && !table.can_insert(2));

    table.reset().unwrap();
    let again = table.tally(Some((tally.incarnation, 9))).unwrap();
    assert!(again.incarnation != tally.incarnation);
    assert_eq!((again.ration, again.counters), (Some(0), Counters::default()));
    table.configure(Change { limiter: Some(Limiter::min_size(1).unwrap()), ..Change::default() }).unwrap();
    assert_eq!(table.tally(None).unwrap().ration, None);
    table.close();
    assert!(matches!(table.tally(None), Err(Error::Closed { .. })));
}

#[test]
fn draws_bring_what_the_table_was_with_them() {
    let sampler = SelectorOptions::Prioritized { exponent: 1.0 };
    let (tables, _) = tables(vec![reverie_core::table::TableOptions { sampler, ..options("t", 100) }]);
    let mut rows = Rows::new(&tables);
    tables.get("t").unwrap().insert(rows.inserts(&[1.0, 2.0, 3.0])).unwrap();
    let mut ticket = tables.sample("t", SampleRequest { num_samples: 4, ..Default::default() }).unwrap();
    let draws = ticket.poll().unwrap().unwrap();
    let tally = draws.tally.unwrap();
    assert_eq!((tally.mass, tally.size, tally.counters.samples), (Mass { total: 3.0, zeros: 0 }, 3, 4));
    assert_eq!(tally.smallest_probability, draws.smallest_probability);
    assert_eq!(draws.clone().split_off(2).tally, Some(tally));
}

fn output(path: &str, itemsize: usize, shape: &[usize]) -> OutputArray {
    OutputArray { path: path.to_owned(), dtype: DType::Bytes, itemsize, shape: shape.to_vec(), role: Role::Column }
}

#[test]
fn arrays_of_unequal_width_and_length_become_one_with_zeros_behind_what_is_shorter() {
    let (narrow, wide) = ([output("s", 1, &[2, 1])], [output("s", 3, &[1, 2])]);
    let whole = join(&[&narrow, &wide], Ragged::Pad).unwrap();
    assert_eq!(whole, [output("s", 3, &[3, 2])]);
    let mut out = [MaybeUninit::new(9_u8); 18];
    let row = place(&mut out, &whole[0], 0, &narrow[0], b"ab");
    assert_eq!(place(&mut out, &whole[0], row, &wide[0], b"cdefgh"), 3);
    // SAFETY: every byte was initialised above.
    let out = out.map(|byte| unsafe { byte.assume_init() });
    assert_eq!(&out, b"a\0\0\0\0\0b\0\0\0\0\0cdefgh");

    let refused = |parts: &[&[OutputArray]], ragged| join(parts, ragged).unwrap_err().to_string();
    assert!(refused(&[&narrow, &wide], Ragged::Refuse).contains("items of 1 and of 2 cells"));
    assert!(refused(&[&narrow, &[output("x", 1, &[1, 1])]], Ragged::Pad).contains("other columns or dtypes"));
    assert!(refused(&[&narrow, &[]], Ragged::Pad).contains("different columns, or columns of different lengths"));
    assert_eq!(join(&[], Ragged::Pad).unwrap(), []);
}

#[test]
fn a_client_that_has_seen_a_table_is_notified_when_it_is_another() {
    let shard = reverie_core::table::TableOptions { limiter: Limiter::rationed(), ..options("t", 100) };
    let (tables, _) = tables(vec![shard]);
    let (table, mut rows) = (tables.get("t").unwrap(), Rows::new(&tables));
    let known = table.tally(Some((table.tally(None).unwrap().incarnation, 2))).unwrap();
    let look = |seen| table.changed_tally(None, seen).unwrap();
    let (mut one, mut three) = (look(known.seen(1)), look(known.seen(3)));
    table.insert(rows.inserts(&[1.0])).unwrap();
    assert_eq!(one.poll().unwrap().unwrap().counters.inserts, 1);
    assert!(three.poll().is_none(), "one insert is none of three");
    // Another ration, and a request that waits for one, are news whatever the inserts.
    table.insert(rows.inserts(&[1.0, 2.0])).unwrap();
    assert_eq!(three.poll().unwrap().unwrap().waiting_inserts, 1);
    let seen = table.tally(None).unwrap().seen(9);
    let mut more = look(seen);
    table.tally(Some((known.incarnation, 3))).unwrap();
    assert_eq!(more.poll().unwrap().unwrap().ration, Some(3));
    let mut reset = look(table.tally(None).unwrap().seen(9));
    table.reset().unwrap();
    assert_ne!(reset.poll().unwrap().unwrap().incarnation, known.incarnation);
    // A change that happened already is reported at once; a look that is withdrawn, or dropped, waits no more.
    assert!(look(known.seen(1)).is_done());
    let now = table.tally(None).unwrap();
    assert_eq!(look(now.seen(1)).cancel().unwrap(), now);
    drop(look(now.seen(1)));
    let mut last = look(now.seen(1));
    table.close();
    assert!(last.poll().unwrap().is_err());
}
