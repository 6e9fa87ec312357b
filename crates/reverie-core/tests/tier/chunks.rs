//! A chunk that moves to the disk is the same chunk.

use super::support::{Temporary, WIDTHS, check, chunk, meter, options, until};
use reverie_core::checkpoint::{Disk, LocalFileSystem};
use reverie_core::chunk::{Account, Chunk, ChunkWriter, Compression, Layout, Meter, Restorer};
use reverie_core::error::Error;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const STEPS: usize = 20;

fn on_disk(chunks: &[Arc<Chunk>]) -> usize {
    chunks.iter().filter(|chunk| chunk.is_on_disk()).count()
}

#[test]
fn chunks_beyond_the_memory_move_to_the_disk_and_read_as_before() {
    for compression in Compression::ALL {
        let folder = Temporary::new();
        let meter = meter(options(&folder, 1 << 20));
        let chunks: Vec<_> = (0..60).map(|number| chunk(&meter, number, STEPS, compression)).collect();
        let total: u64 = chunks.iter().map(|chunk| chunk.size_bytes()).sum();
        until("the memory is within its limit", || meter.memory_bytes() <= 1 << 20);
        let info = meter.tier_info().unwrap();
        if compression == Compression::None {
            assert!(total > 5 << 20 && on_disk(&chunks) > 40, "{info:?}");
            assert!(info.stored > 4 << 20, "{info:?}");
        }
        chunks.iter().enumerate().for_each(|(number, chunk)| check(chunk, number as u64, STEPS));
        drop(chunks);
        until("the mover has released its last chunk", || {
            let info = meter.tier_info().unwrap();
            (meter.live_bytes(), meter.memory_bytes(), meter.live_chunks()) == (0, 0, 0)
                && (info.stored, info.chunks) == (0, 0)
        });
    }
}

#[test]
fn the_accounts_stay_exact_while_chunks_move() {
    let folder = Temporary::new();
    let meter = meter(options(&folder, 1 << 20));
    let (first, second) = (Arc::new(Account::new()), Arc::new(Account::new()));
    let chunks: Vec<_> = (0..60)
        .map(|number| {
            let chunk = chunk(&meter, number, STEPS, Compression::None);
            chunk.table_ref(&first);
            if number % 2 == 0 {
                chunk.table_ref(&second);
            }
            chunk
        })
        .collect();
    until("the memory is within its limit", || meter.memory_bytes() <= 1 << 20);
    let index = |chunk: &Arc<Chunk>| if chunk.is_on_disk() { chunk.memory_bytes() } else { 0 };
    // Tables refer to it while it is open.
    let open = ChunkWriter::new(Arc::new(Layout::columnar(&WIDTHS, STEPS)), Compression::None, &meter);
    let opened = Arc::clone(open.chunk());
    [&first, &second].into_iter().for_each(|account| _ = opened.table_ref(account));
    let of_disk = || chunks.iter().map(index).sum::<u64>();
    until("no other memory than of these is unmovable", || {
        meter.unmovable_memory() == (of_disk(), opened.memory_bytes())
    });
    drop(open);
    until("what is written to the end may move", || meter.unmovable_memory() == (of_disk() + index(&opened), 0));
    [&first, &second].into_iter().for_each(|account| _ = opened.table_unref(account));
    drop(opened);
    let size = |chunk: &Arc<Chunk>| chunk.size_bytes();
    // While a chunk moves, one of them was read before and another after.
    until("the accounts are the sums over the chunks", || {
        let memory: u64 = chunks.iter().map(|chunk| chunk.memory_bytes()).sum();
        let total: u64 = chunks.iter().map(size).sum();
        (meter.live_bytes(), meter.memory_bytes()) == (total, memory)
            && (meter.table_bytes(), meter.table_memory()) == (total, memory)
            && first.bytes() == total
            && second.bytes() == chunks.iter().step_by(2).map(size).sum::<u64>()
    });
    for (number, chunk) in chunks.iter().enumerate() {
        chunk.table_unref(&first);
        if number % 2 == 0 {
            chunk.table_unref(&second);
        }
    }
    assert_eq!((meter.table_bytes(), meter.table_memory(), first.bytes(), second.bytes()), (0, 0, 0, 0));
    assert_eq!(meter.unmovable_memory(), (0, 0));
}

#[test]
fn a_chunk_that_is_read_stays_longer_than_those_that_are_not() {
    let folder = Temporary::new();
    let meter = meter(options(&folder, 2 << 20));
    let read: Vec<_> = (0..5).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    let mut unread = Vec::new();
    for number in 5..40 {
        read.iter().for_each(|chunk| drop(chunk.read().unwrap()));
        unread.push(chunk(&meter, number, STEPS, Compression::None));
        until("the memory is within its limit", || meter.memory_bytes() <= 2 << 20);
    }
    assert_eq!(on_disk(&read), 0, "they are the oldest");
    assert!(on_disk(&unread) > 10);
}

#[test]
fn files_go_with_their_last_chunk_and_at_the_end() {
    let folder = Temporary::new();
    let first = meter(options(&folder, 1 << 20));
    let mut chunks: Vec<_> = (0..1000).map(|number| chunk(&first, number, STEPS, Compression::None)).collect();
    until("the memory is within its limit", || first.memory_bytes() <= 1 << 20);
    let files = folder.files().len();
    assert!(files >= 2, "{files}");
    chunks.drain(..950);
    until("files are removed", || folder.files().len() < files);
    drop((chunks, first));
    until("no file is left", || folder.files().is_empty());
}

#[test]
fn sparse_files_are_compacted() {
    let folder = Temporary::new();
    let limits = reverie_core::chunk::TierOptions {
        disk_bytes: Some(64 << 20),
        compaction_bytes_per_second: 0,
        ..options(&folder, 1 << 20)
    };
    let meter = meter(limits);
    let chunks: Vec<_> = (0..400).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    until("the memory is within its limit", || meter.memory_bytes() <= 1 << 20);
    // Every file keeps one chunk of four.
    let left: Vec<_> = chunks.into_iter().enumerate().filter(|(number, _)| number % 4 == 0).collect();
    until("the files have at most one and a half times the bytes of the chunks, and a file", || {
        let info = meter.tier_info().unwrap();
        info.used as f64 <= 1.5 * (info.stored + (4 << 20)) as f64
    });
    assert!(meter.tier_info().unwrap().compacted > 0);
    left.iter().for_each(|(number, chunk)| check(chunk, *number as u64, STEPS));
}

#[test]
fn compaction_keeps_to_its_bytes_a_second() {
    const AT_ONCE: u64 = 1 << 20;
    let folder = Temporary::new();
    let limits = reverie_core::chunk::TierOptions {
        disk_bytes: Some(64 << 20),
        compaction_bytes_per_second: 1,
        ..options(&folder, 1 << 20)
    };
    let meter = meter(limits);
    let mut chunks: Vec<_> = (0..400).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    until("the memory is within its limit", || meter.memory_bytes() <= 1 << 20);
    let mut left = Vec::new();
    for (number, chunk) in chunks.drain(..).enumerate() {
        if number % 4 == 0 {
            left.push(chunk);
        }
    }
    until("some chunks were copied", || meter.tier_info().unwrap().compacted > 0);
    let chunk_bytes = left[0].size_bytes();
    // The next copy is days away, however often the mover works and however much garbage there is.
    for more in 400..500 {
        drop(chunk(&meter, more, STEPS, Compression::None));
        chunks.push(chunk(&meter, more, STEPS, Compression::None));
    }
    until("the memory is within its limit", || meter.memory_bytes() <= 1 << 20);
    let info = meter.tier_info().unwrap();
    assert!(info.compacted <= AT_ONCE + chunk_bytes, "{info:?}");
    assert!(info.used as f64 > 1.5 * info.stored as f64, "there is more to copy: {info:?}");
}

#[test]
fn a_full_tier_reports_it_and_goes_on_when_chunks_are_gone() {
    let folder = Temporary::new();
    let limits = reverie_core::chunk::TierOptions { disk_bytes: Some(2 << 20), ..options(&folder, 1 << 20) };
    let meter = meter(limits);
    let mut chunks: Vec<_> = (0..60).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    until("the files are full", || meter.tier_info().unwrap().error.is_some());
    let info = meter.tier_info().unwrap();
    assert!(info.error.as_ref().unwrap().contains("disk_bytes"), "{info:?}");
    assert!(info.used <= 2 << 20 && meter.memory_bytes() > 1 << 20, "{info:?}");
    chunks.drain(..35);
    until("there is room again", || meter.memory_bytes() <= 1 << 20 && meter.tier_info().unwrap().error.is_none());
    chunks.iter().enumerate().for_each(|(number, chunk)| check(chunk, number as u64 + 35, STEPS));
}

#[test]
fn a_changed_byte_in_a_file_is_an_error_and_never_a_wrong_cell() {
    let folder = Temporary::new();
    let meter = meter(options(&folder, 64 << 10));
    let chunks: Vec<_> = (0..4).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    // The mover has stopped.
    until("a chunk is on the disk", || chunks[0].is_on_disk() && meter.memory_bytes() <= 56 << 10);
    let path = folder.0.join(&folder.files()[0]);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    let stored: Vec<_> = chunks.iter().filter(|chunk| chunk.is_on_disk()).collect();
    for at in (0..length).step_by(997) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let outcomes: Vec<_> = stored.iter().map(|chunk| chunk.read().map(drop)).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "byte {at}");
        let failed = outcomes.into_iter().find_map(Result::err).unwrap();
        assert!(
            matches!(&failed, Error::DamagedFile { path: named, .. } if *named == path.display().to_string()),
            "{failed}"
        );
        file.write_all_at(&byte, at).unwrap();
    }
    stored.iter().for_each(|chunk| drop(chunk.read().unwrap()));
}

#[test]
fn only_the_wanted_cells_are_read_where_they_are_not_packed() {
    let folder = Temporary::new();
    let meter = meter(options(&folder, 64 << 10));
    let chunks: Vec<_> = (0..3).map(|number| chunk(&meter, number, STEPS, Compression::None)).collect();
    until("a chunk is on the disk", || chunks[0].is_on_disk());
    let path = folder.0.join(&folder.files()[0]);
    // The last cell of the second column of the first chunk.
    let at = (40 * STEPS + 5000 * STEPS - 1) as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xee], at).unwrap();
    let mut decoder = reverie_core::chunk::Decoder::default();
    let wanted = |column| (column == 1).then_some(3..5);
    let cells = chunks[0].read_with(&mut decoder, &wanted).unwrap();
    assert!(cells.run(1, 3, 2) == Some(&[super::support::cell(0, 1, 3), super::support::cell(0, 1, 4)].concat()));
    assert_eq!(cells.cell(1, 2), None);
    assert_eq!(cells.run(1, 4, 2), None);
    let last = |column| (column == 1).then_some(STEPS - 1..STEPS);
    assert!(matches!(chunks[0].read_with(&mut decoder, &last), Err(Error::DamagedFile { .. })));
}

#[test]
fn a_saved_chunk_is_the_same_wherever_it_is() {
    for compression in [Compression::None, Compression::Zstd] {
        let folder = Temporary::new();
        let meter = meter(options(&folder, 1));
        let chunk = chunk(&meter, 7, STEPS, compression);
        until("it is on the disk", || chunk.is_on_disk());
        let plain = Arc::new(Meter::new());
        let in_memory = super::support::chunk(&plain, 7, STEPS, compression);
        let (mut here, mut there) = (Vec::new(), Vec::new());
        assert_eq!(chunk.save(&mut here).unwrap(), in_memory.save(&mut there).unwrap());
        assert!(here == there, "{compression:?}");
        check(&Restorer::new(&plain).chunk(&here).unwrap(), 7, STEPS);
    }
}

#[test]
fn a_folder_has_one_server_and_its_old_files_are_removed() {
    let folder = Temporary::new();
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.0.join("12-00000007.chunks"), b"left by a process that was killed").unwrap();
    let others = ["other", "notes.chunks", "00000007.chunks", "1-2.chunks", "a-00000007.chunks", "-00000007.chunks"];
    others.iter().for_each(|name| std::fs::write(folder.0.join(name), b"not ours").unwrap());
    let meter = meter(options(&folder, 1 << 20));
    assert!(!folder.0.join("12-00000007.chunks").exists());
    others.iter().for_each(|name| assert!(folder.0.join(name).exists(), "{name} is no server's"));
    let second = Arc::new(Meter::new()).set_tier(options(&folder, 1 << 20), Arc::new(LocalFileSystem)).unwrap_err();
    assert!(matches!(&second, Error::Storage { reason, .. } if reason.contains("another server")), "{second}");
    drop(meter);
    Arc::new(Meter::new()).set_tier(options(&folder, 1 << 20), Arc::new(LocalFileSystem)).unwrap();
    assert!(LocalFileSystem.list(&folder.0).unwrap().contains(&"other".to_owned()));
}
