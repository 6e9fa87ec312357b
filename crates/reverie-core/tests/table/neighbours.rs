//! Priorities that reach back over a stream of steps.

use super::support::{self, Rows, options};
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Neighbours, Table, TableOptions, Updates};

#[test]
fn each_item_before_an_updated_one_gets_the_priority_decayed_once_more() {
    let (sink, _) = support::tables(vec![options("chunks", 1)]);
    let mut rows = Rows::new(&sink);
    let sampler = SelectorOptions::Prioritized { exponent: 1.0 };
    let mut table = Table::new(TableOptions { sampler, ..options("t", 8) }, 99).unwrap();
    let mut insert = |value: f64| {
        let mut item = rows.item(value);
        (item.stream, item.episode) = (1, 1);
        table.insert(item, 1.0, 0).get()
    };
    let keys: Vec<i64> = (0..4).map(|value| insert(f64::from(value))).collect();
    let neighbours = Some(Neighbours::new(2, 0.5).unwrap());
    let updates = Updates { keys: &keys[3..], priorities: &[8.0], neighbours, ..Updates::default() };
    table.update(&updates).unwrap();
    assert_eq!(table.get(&keys).unwrap().priorities, [1.0, 2.0, 4.0, 8.0]);
}
