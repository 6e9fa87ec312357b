//! The accounts of a chunk's bytes: that of the server and those of the tables.

use super::support::{frames, meter};
use reverie_core::chunk::{Account, Chooser, Chunk, Compression};
use std::sync::Arc;

#[test]
fn the_server_counts_a_chunk_once_and_at_last_nothing() {
    let meter = meter();
    let (plain, _) = frames(Compression::None, &meter, 100, 4);
    let (packed, _) = frames(Compression::Zstd, &meter, 5000, 4);
    let (plain, packed) =
        (plain.seal(&mut Chooser::new(Compression::None)), packed.seal(&mut Chooser::new(Compression::Zstd)));
    assert_eq!(meter.live_chunks(), 2);
    assert_eq!(meter.live_bytes(), plain.size_bytes() + packed.size_bytes());
    assert!(packed.size_bytes() < packed.raw_bytes());
    drop((plain, packed));
    assert_eq!((meter.live_bytes(), meter.live_chunks()), (0, 0));
}

#[test]
fn each_table_is_charged_once_per_chunk_and_follows_when_it_is_packed() {
    for compression in [Compression::None, Compression::Zstd] {
        let meter = meter();
        let (writer, _) = frames(compression, &meter, 5000, 4);
        let chunk: Arc<Chunk> = writer.chunk().clone();
        let tables: Vec<Arc<Account>> = (0..5).map(|_| Arc::new(Account::new())).collect();
        for table in &tables {
            assert!(chunk.table_ref(table));
            assert!(!chunk.table_ref(table));
            assert_eq!(table.bytes(), chunk.raw_bytes());
        }
        writer.seal(&mut Chooser::new(compression));
        for table in &tables {
            assert_eq!(table.bytes(), chunk.size_bytes(), "{compression:?}");
            assert!(!chunk.table_ref(table));
        }
        for table in &tables {
            assert_eq!([(); 3].map(|()| chunk.table_unref(table)), [false, false, true]);
            assert_eq!(table.bytes(), 0);
            assert!(chunk.table_ref(table), "the place is free again");
            assert!(chunk.table_unref(table));
        }
    }
}

#[test]
fn tables_take_and_give_back_references_at_once() {
    let meter = meter();
    let (writer, _) = frames(Compression::None, &meter, 10, 4);
    let chunk = writer.seal(&mut Chooser::new(Compression::None));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let table = Arc::new(Account::new());
                for _ in 0..2000 {
                    assert!(chunk.table_ref(&table));
                    assert!(!chunk.table_ref(&table));
                    assert_eq!(table.bytes(), chunk.size_bytes());
                    assert!(!chunk.table_unref(&table));
                    assert!(chunk.table_unref(&table));
                    assert_eq!(table.bytes(), 0);
                }
            });
        }
    });
}
