//! Checkpoints of every version that was ever released, which every later version reads.
//!
//! `tests/kept/checkpoint-VERSION` has the files, and in `contents.txt` what is in them. Never change or delete them.
//! When the version of the format changes, write the folder of the new version with
//! `cargo test -p reverie-core --test checkpoint -- --ignored kept` and commit it.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, NOW, ROOT, draw, insert, over, save, store, write_steps};
use super::support::{Rows, cell, options, queue, tables};
use reverie_core::Error;
use reverie_core::append::next_episode;
use reverie_core::checkpoint::{LocalFileSystem, RetentionPolicy, Store, describe, latest, load, verify};
use reverie_core::chunk::Compression;
use reverie_core::item;
use reverie_core::spec::{ColumnSignature, DType, Signature, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{InsertOnSample, Keys, SentInsert, TableOptions, Tables};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The version of the format: the eighth byte of the first file.
const VERSION: u8 = 2;

fn folder(version: u8) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kept/checkpoint-{version}"))
}

/// Tables that use every field of the format.
fn full() -> Arc<Tables> {
    let column = |path: &str, dtype, shape: &[_]| ColumnSignature { path: path.to_owned(), dtype, shape: shape.into() };
    let columns = vec![column("0", DType::Float64, &[None, Some(64)]), column("1", DType::Int16, &[None])];
    let signature = Signature { columns, structure: Structure::List(vec![Structure::Leaf; 2]) };
    let copying = InsertOnSample { target: "copies".to_owned(), timeout: None };
    let (tables, clock) = tables(vec![
        TableOptions {
            sampler: SelectorOptions::Prioritized { exponent: 0.6 },
            signature: Some(signature),
            max_bytes: Some(1 << 20),
            compression: Compression::Zstd,
            shard: 5,
            ..options("steps", 16)
        },
        TableOptions {
            sampler: SelectorOptions::Lifo,
            remover: SelectorOptions::MinHeap,
            limiter: Limiter::new(4.0, 2, f64::NEG_INFINITY, 100.5).unwrap(),
            max_times_sampled: 9,
            extensions: vec![copying],
            ..options("rows", 6)
        },
        options("copies", 10),
        queue("queue", 3),
        options("episodes", 5),
    ]);
    clock.advance(Duration::from_millis(1500));
    drop(write_steps(&tables, "steps", Compression::Zstd, 20));
    let mut rows = Rows::new(&tables);
    let items: Vec<_> = (0..8).map(|value| (rows.item(f64::from(value)), f64::from(value) / 4.0)).collect();
    let keys = insert(&tables, "rows", items);
    let table = tables.get("rows").unwrap();
    table.update(&keys[5..7], &[3.0, -0.5], None).unwrap();
    table.delete(&keys[3..4]).unwrap();
    clock.advance(Duration::from_secs(1));
    draw(&tables, "rows", 2);
    let queue = tables.get("queue").unwrap();
    let sent = |number| SentInsert { sender: [7; 16], number };
    for (number, values) in [(4, &[1.0, 2.0][..]), (6, &[3.0])] {
        queue.insert_sent(rows.inserts(values), sent(number), Keys::new()).unwrap();
    }
    tables.forgotten().add([3; 16]);
    let [a, b] = std::array::from_fn(|_| next_episode());
    insert(&tables, "episodes", [(over(&mut rows, 9.0, a, &[b]), 1.0)]);
    tables
}

/// The content of the tables as text that does not depend on the engine's types.
fn listing(tables: &Tables) -> String {
    let mut text = String::new();
    for table in tables.iter() {
        let info = table.info();
        let (options, counters, stats) = (&info.options, info.counters, &info.stats);
        let limiter = &options.limiter;
        writeln!(text, "table {}", table.name()).unwrap();
        writeln!(text, "  sampler {}, remover {}, max_size {}", options.sampler, options.remover, options.max_size)
            .unwrap();
        let (ratio, least) = (limiter.samples_per_insert(), limiter.min_size_to_sample());
        writeln!(text, "  limiter {ratio} {least} {:?} {:?}", limiter.min_diff(), limiter.max_diff()).unwrap();
        let signature = options.signature.as_ref().map_or("none".to_owned(), ToString::to_string);
        writeln!(text, "  max_times_sampled {}, signature {signature}", options.max_times_sampled).unwrap();
        let compression = Compression::ALL.iter().position(|known| *known == options.compression).unwrap();
        let max_bytes = options.max_bytes.unwrap_or(0);
        writeln!(text, "  max_bytes {max_bytes}, compression {compression}, shard {}", options.shard).unwrap();
        writeln!(text, "  {} inserts, {} samples, {} deletes", counters.inserts, counters.samples, counters.deletes)
            .unwrap();
        writeln!(
            text,
            "  {} evicted, {} sampled, {} updated, {} stale updates, {} stale deletes, {} of {} episodes, ages {:?}",
            stats.evicted,
            stats.sampled_unique,
            stats.updated,
            stats.stale_updates,
            stats.stale_deletes,
            stats.deleted_episodes,
            info.num_episodes,
            stats.age_histogram.iter().enumerate().filter(|(_, count)| **count > 0).collect::<Vec<_>>(),
        )
        .unwrap();
        for sender in table.senders() {
            writeln!(text, "  sender {}: {}", sender[0], arrivals(&table.arrivals(&sender))).unwrap();
        }
        for (index, slot, age) in table.cut().iter() {
            let (item, key) = (slot.item.as_ref().unwrap(), item::Key::new(options.shard, slot.generation, index));
            let (version, times, inserted, updated) =
                (slot.version(), slot.times_sampled(), age.inserted, age.updated());
            let (streamed, further) = (item.stream != 0, item.further_episodes().len());
            writeln!(text, "  item {key}: priority {}, version {version}, sampled {times}", slot.priority()).unwrap();
            writeln!(text, "    order {inserted} {updated}, stream {streamed}, further episodes {further}").unwrap();
            writeln!(text, "    timestep {}, paths {:?}", item.pattern.timestep, item.pattern.structure.paths())
                .unwrap();
            for (number, column) in item.pattern.columns.iter().enumerate() {
                let cells: Vec<u8> = (0..column.cells.len()).flat_map(|index| cell(item, number, index)).collect();
                let (spec, count) = (&column.spec, column.cells.len());
                let (squeeze, crc) = (column.squeeze, crc32fast::hash(&cells));
                writeln!(
                    text,
                    "    {} {} {:?} x {count}, squeeze {squeeze}: {crc:08x}",
                    spec.path, spec.dtype, spec.shape
                )
                .unwrap();
            }
        }
        let copies: Vec<String> = table.cut().copies().map(|(slot, key)| format!("{slot} of {key}")).collect();
        writeln!(text, "  copies {copies:?}").unwrap();
    }
    // One guard at a time.
    let [three, seven] = [3, 7].map(|sender| tables.forgotten().has(&[sender; 16]));
    writeln!(text, "forgotten {three} {seven}").unwrap();
    text
}

fn arrivals(arrivals: &[(u64, Keys)]) -> String {
    let one = |(number, keys): &(u64, Keys)| {
        let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
        format!("{number} {keys:?}")
    };
    arrivals.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The content of tables with the checkpoint's own options, restored from the newest checkpoint of a folder.
fn restored(root: &Path) -> String {
    let path = latest(&LocalFileSystem, root).unwrap().expect("a checkpoint");
    verify(&LocalFileSystem, &path).unwrap();
    let checkpoint = load(&LocalFileSystem, &path, &Arc::default()).unwrap();
    let options: Vec<TableOptions> = checkpoint.summary.tables.iter().map(|table| table.options.clone()).collect();
    let (tables, clock) = tables(options);
    clock.advance(checkpoint.clock_at(NOW));
    assert_eq!(checkpoint.restore(&tables, NOW).unwrap().differences, []);
    listing(&tables)
}

#[test]
fn the_checkpoints_of_every_version_are_read_for_ever() {
    for version in 1..=VERSION {
        let root = folder(version);
        let want = std::fs::read_to_string(root.join("contents.txt")).unwrap();
        assert_eq!(restored(&root), want, "version {version}");
    }
}

#[test]
fn written_files_have_the_version_of_the_kept_checkpoint() {
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &full());
    assert!(disk.files().iter().all(|(path, bytes)| bytes[7] == VERSION && path.starts_with(ROOT)));
    assert_eq!(disk.files().len(), 2);
}

#[test]
fn a_file_of_another_version_is_refused_by_both_versions_and_is_not_called_damaged() {
    let disk = FakeDisk::default();
    let path = save(&store(&disk, KEEP), &full()).path;
    let newer = (VERSION + 1, format!("up to version {VERSION}"), "a newer Reverie");
    let older = (0, "from version 1 on".to_owned(), "an older Reverie");
    let others = disk.files().into_iter().flat_map(|file| [(file.clone(), &newer), (file, &older)]);
    for ((file, whole), (version, reads, advice)) in others {
        let crc = if file == path { 8 } else { 16 };
        let disk = disk.copy();
        disk.edit(&file, |bytes| {
            bytes[7] = *version;
            let sum = crc32fast::hash(&bytes[..crc]);
            bytes[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
        });
        let refusals = [load(&disk, &path, &Arc::default()).err(), verify(&disk, &path).err()];
        let described = (file == path).then(|| describe(&disk, &path).unwrap_err());
        for error in refusals.into_iter().map(|error| error.expect("it is refused")).chain(described) {
            assert!(matches!(&error, Error::Storage { path, .. } if *path == file.display().to_string()), "{error}");
            let text = error.to_string();
            let words = [&format!("version {version}"), reads, *advice];
            assert!(words.iter().all(|words| text.contains(words)), "{text}");
        }
        // A version that no checksum confirms is damage.
        disk.edit(&file, |bytes| bytes[7] = VERSION + 2);
        assert!(matches!(verify(&disk, &path), Err(Error::DamagedFile { .. })));
        disk.edit(&file, |bytes| bytes.clone_from(&whole));
        verify(&disk, &path).unwrap();
    }
}

#[test]
#[ignore = "writes the folder of a new version"]
fn write_the_checkpoint_that_is_kept_of_this_version() {
    let root = folder(VERSION);
    assert!(!root.exists(), "{} is kept as it is", root.display());
    let store =
        Store::new(Arc::new(LocalFileSystem), root.clone(), RetentionPolicy { count: 1, max_age: None }).unwrap();
    store.save(&full(), NOW).unwrap();
    std::fs::remove_file(root.join("lock")).unwrap();
    std::fs::write(root.join("contents.txt"), restored(&root)).unwrap();
}
