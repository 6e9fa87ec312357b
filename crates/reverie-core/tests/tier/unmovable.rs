//! Memory that no move to the disk frees: the index of the chunks that are there, and chunks that are still being
//! written.

use super::shared::{leaf, options, queue};
use super::tables::{ITEM, Writer, done, drawn, tables};
use super::tiers::{self, Temporary, until};
use reverie_core::append::ColumnCells;
use reverie_core::checkpoint::LocalFileSystem;
use reverie_core::error::Error;
use reverie_core::spec::DType;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{InsertReason, Inserts, Priority, SharedTable, TableOptions, Tables};
use std::sync::Arc;

/// Tables whose memory has room for three items, or for the index of a few hundred on the disk.
fn tables_of_three_items(folder: &Temporary, made: Vec<TableOptions>, max_bytes: Option<u64>) -> Arc<Tables> {
    tables(made, tiers::options(folder, 3 * ITEM as u64), Arc::new(LocalFileSystem), max_bytes)
}

#[test]
fn an_insert_is_refused_when_the_index_of_chunks_on_the_disk_fills_the_memory() {
    let folder = Temporary::new();
    let tables = tables_of_three_items(&folder, vec![options("t", 10_000)], None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    let refused = (0..1000).find_map(|number| done(table.insert(writer.inserts(number))).err());
    let refused = refused.expect("some insert is refused");
    assert!(matches!(&refused, Error::ResourceExhausted { hint, .. } if hint.contains("longer chunks")), "{refused}");
    let (size, meter) = (table.info().size, tables.bytes().0);
    let index = meter.unmovable_memory().0;
    let (least, most) = (3 * ITEM as u64 - 1000, 3 * ITEM as u64);
    assert!((least..=most).contains(&index), "the index of {size} chunks has {index} bytes");
    // The next one as well, and once items are gone there is room again.
    assert!(matches!(done(table.insert(writer.inserts(0))), Err(Error::ResourceExhausted { .. })));
    table.reset().unwrap();
    assert_eq!(meter.unmovable_memory(), (0, 0));
    done(table.insert(writer.inserts(0))).unwrap();
}

#[test]
fn an_insert_waits_for_unmovable_memory_where_samples_free_some() {
    let folder = Temporary::new();
    let tables = tables_of_three_items(&folder, vec![queue("q", 10_000)], None);
    let (table, mut writer) = (tables.get("q").unwrap().clone(), Writer::new(&tables));
    let waiting = (0..1000).find_map(|number| {
        let ticket = table.insert(writer.inserts(number)).unwrap();
        until("the insert is done or waits for what does not move", || {
            ticket.is_done()
                || matches!(table.why().insert_reason, Some(InsertReason::Memory { unmovable: Some(_), .. }))
        });
        (!ticket.is_done()).then_some(ticket)
    });
    let why = table.why().to_string();
    assert!(why.contains("index of chunks on the disk") && !why.contains("no chunk can move"), "{why}");
    drop(drawn(&table));
    done(Ok(waiting.unwrap())).unwrap();
}

#[test]
fn an_insert_is_refused_where_samples_themselves_wait_for_more_inserts() {
    let folder = Temporary::new();
    let limiter = Limiter::min_size(5000).unwrap();
    let tables = tables_of_three_items(&folder, vec![TableOptions { limiter, ..queue("q", 10_000) }], None);
    let (table, mut writer) = (tables.get("q").unwrap().clone(), Writer::new(&tables));
    let refused = (0..1000).find_map(|number| done(table.insert(writer.inserts(number))).err());
    assert!(matches!(&refused, Some(Error::ResourceExhausted { .. })), "{refused:?}");
}

#[test]
fn a_request_whose_index_exceeds_the_memory_is_refused_as_a_whole() {
    let folder = Temporary::new();
    let tables = tables_of_three_items(&folder, vec![options("t", 10_000), options("few", 100)], None);
    let (table, mut writer) = (tables.get("t").unwrap(), Writer::new(&tables));
    let mut request = |items: u64| (0..items).flat_map(|number| writer.inserts(number)).collect::<Inserts>();
    let refused = done(table.insert(request(900)));
    assert!(matches!(&refused, Err(Error::ResourceExhausted { .. })), "{refused:?}");
    assert_eq!(table.info().size, 0);
    done(table.insert(request(200))).unwrap();
    // Most of them leave again at once.
    let few = tables.get("few").unwrap();
    done(few.insert(request(900))).unwrap();
    assert_eq!((table.info().size, few.info().size), (200, 100));
}

/// A writer's next row, in a chunk that has room for four.
fn insert_row(table: &Arc<SharedTable>, writer: &mut Writer) -> Result<(), Error> {
    const ROW: usize = 2 << 10;
    let schema = leaf(DType::UInt8, &[ROW]);
    let item = writer.0.append_row(&schema, &[ColumnCells { itemsize: 1, bytes: &[7; ROW] }])?;
    done(table.insert(std::iter::once((item, Priority::Value(1.0))).collect())).map(|_| ())
}

#[test]
fn a_full_table_takes_no_more_open_chunks_than_memory_has_room_for() {
    const MEMORY: u64 = 128 << 10;
    let folder = Temporary::new();
    let tables = tables(vec![options("t", 60)], tiers::options(&folder, MEMORY), Arc::new(LocalFileSystem), None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    for _ in 0..60 {
        insert_row(&table, &mut writer).unwrap();
        writer.0.close();
    }
    let mut writers: Vec<_> = (0..50).map(|_| Writer::new(&tables)).collect();
    let taken = writers.iter_mut().map(|writer| insert_row(&table, writer)).filter(Result::is_ok).count();
    let held = tables.bytes().0.table_memory();
    assert!((5..16).contains(&taken) && held <= MEMORY, "{taken} are in, the tables hold {held} bytes of memory");
    // An open chunk of an item in the table takes more rows.
    insert_row(&table, &mut writers[0]).unwrap();
}

#[test]
fn an_insert_for_which_open_chunks_leave_too_little_is_refused_until_one_of_them_is_closed() {
    let folder = Temporary::new();
    let tables = tables(vec![options("t", 100)], tiers::options(&folder, 20 << 10), Arc::new(LocalFileSystem), None);
    let (table, mut writers) = (tables.get("t").unwrap().clone(), [0, 1, 2].map(|_| Writer::new(&tables)));
    (0..2).for_each(|at| insert_row(&table, &mut writers[at]).unwrap());
    let refused = insert_row(&table, &mut writers[2]).expect_err("the two chunks that are open cannot move");
    assert!(matches!(&refused, Error::ResourceExhausted { hint, .. } if hint.contains("shorter chunks")), "{refused}");
    writers[0].0.close();
    insert_row(&table, &mut writers[2]).unwrap();
    assert_eq!(table.info().size, 3);
}

#[test]
fn an_insert_that_exceeds_the_bytes_of_memory_and_disk_is_refused_though_chunks_can_move() {
    let folder = Temporary::new();
    let most = 6 * (ITEM as u64 + 1000);
    let tables = tables_of_three_items(&folder, vec![options("t", 100)], Some(most));
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    let refused = (0..8).find_map(|number| done(table.insert(writer.inserts(number))).err()).expect("one is refused");
    assert!(matches!(&refused, Error::ResourceExhausted { budget, .. } if *budget == most), "{refused}");
    assert!(tables.bytes().0.table_bytes() < most, "there is room for a smaller one");
    assert_eq!(table.info().size, 6);
}
