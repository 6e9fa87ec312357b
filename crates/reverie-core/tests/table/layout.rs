//! The layout that a table without a signature takes from its first insert, where inserts wait or are withdrawn.

use super::support::{self, leaf, options, spec, tables};
use super::waiting::sample;
use reverie_core::Error;
use reverie_core::append::{ColumnCells, MultiTableInsert, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_core::spec::{DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Change, CopyStats, InsertOnSample, Inserts, Priority, SharedTable, TableOptions, Tables};
use std::sync::Arc;

/// A table that holds back every insert.
fn blocked() -> (Arc<Tables>, Arc<SharedTable>) {
    let (tables, _) = tables(vec![TableOptions { limiter: Limiter::rationed(), ..options("t", 10) }]);
    let table = Arc::clone(tables.iter().next().unwrap());
    (tables, table)
}

fn row_of(tables: &Arc<Tables>, schema: &Arc<Schema>, size: usize) -> Item {
    let sink: Arc<dyn Sink> = tables.clone();
    let mut rows = RowWriter::new(sink, Compression::None, true).of_alike();
    rows.append_row(schema, &[ColumnCells { itemsize: size, bytes: &vec![0; size] }]).unwrap()
}

fn row(tables: &Arc<Tables>, dtype: DType) -> Item {
    row_of(tables, &leaf(dtype, &[]), dtype.size().unwrap())
}

fn inserts(items: impl IntoIterator<Item = Item>) -> Inserts {
    items.into_iter().map(|item| (item, Priority::Value(1.0))).collect()
}

#[test]
fn a_waiting_insert_sets_the_layout_and_a_withdrawn_one_releases_it() {
    let (tables, table) = blocked();
    let ticket = table.insert(inserts([row(&tables, DType::Float32)])).unwrap();
    let refused = table.insert(inserts([row(&tables, DType::Float64)])).err().unwrap();
    assert!(matches!(&refused, Error::Signature { got, want, .. }
        if got == "float64 []" && want.starts_with("float32 [], the layout that table 't' took")));
    assert!(ticket.cancel().unwrap().is_empty());
    assert!(table.insert(inserts([row(&tables, DType::Float64)])).is_ok());
}

#[test]
fn inserts_that_wait_during_a_reset_keep_the_layout() {
    let (tables, table) = blocked();
    let mut waiting = table.insert(inserts([row(&tables, DType::Float32)])).unwrap();
    table.reset().unwrap();
    assert!(table.insert(inserts([row(&tables, DType::Float64)])).is_err());
    table.configure(Change { limiter: Some(Limiter::min_size(1).unwrap()), ..Change::default() }).unwrap();
    assert_eq!(waiting.poll().unwrap().unwrap().len(), 1);
    assert!(table.insert(inserts([row(&tables, DType::Float64)])).is_err());
    table.reset().unwrap();
    assert!(table.insert(inserts([row(&tables, DType::Float64)])).is_ok());
}

#[test]
fn a_refused_request_and_a_mere_check_set_no_layout() {
    let (tables, _) = tables(vec![options("t", 10), options("other", 10)]);
    let table = tables.get("t").unwrap();
    let mut plain = support::Rows::new(&tables);
    table.insert(plain.inserts(&[1.0])).unwrap();
    let unlike = [row(&tables, DType::Int8), row(&tables, DType::Int16)];
    assert!(table.insert(inserts(unlike)).is_err());
    tables.get("other").unwrap().insert(inserts([row(&tables, DType::Float32)])).unwrap();
    let both = [("t", Priority::Value(1.0)), ("other", Priority::Value(1.0))];
    assert!(MultiTableInsert::send(&*tables, row(&tables, DType::Int32), &both).is_err());
    assert!(table.insert(inserts([row(&tables, DType::Float32)])).is_ok());
    assert_eq!(table.info().size, 2);
}

#[test]
fn copies_of_another_layout_go_into_a_table_that_was_reset() {
    let extensions = vec![InsertOnSample { target: "t".to_owned(), timeout: None }];
    let (tables, _) = tables(vec![TableOptions { extensions, ..options("source", 10) }, options("t", 10)]);
    let (source, target) = (tables.get("source").unwrap(), tables.get("t").unwrap());
    for dtype in [DType::Float32, DType::Float64] {
        source.insert(inserts([row(&tables, dtype)])).unwrap();
        drop(source.sample(sample(1)).unwrap().poll().expect("nothing holds it back").unwrap());
        assert_eq!(source.info().copies[0], CopyStats { inserted: 1, ..CopyStats::default() }, "{dtype:?}");
        let other = row(&tables, DType::Int8);
        assert!(target.insert(inserts([other])).is_err(), "the copy set the layout");
        source.reset().unwrap();
        target.reset().unwrap();
    }
}

#[test]
fn a_list_and_a_tuple_of_the_same_columns_are_one_layout() {
    let (tables, _) = tables(vec![options("t", 10)]);
    let table = tables.get("t").unwrap();
    let schema = |structure| Arc::new(Schema { columns: vec![spec("0", DType::Int8, &[])], structure });
    for structure in [Structure::List(vec![Structure::Leaf]), Structure::Tuple(vec![Structure::Leaf])] {
        table.insert(inserts([row_of(&tables, &schema(structure), 1)])).unwrap();
    }
    let other = schema(Structure::Dict(vec![(reverie_core::spec::StructureKey::Str("x".to_owned()), Structure::Leaf)]));
    let refused = table.insert(inserts([row_of(&tables, &other, 1)])).err().unwrap();
    assert!(matches!(&refused, Error::Signature { got, .. } if got == "a dict of 'x'"), "{refused}");
}
