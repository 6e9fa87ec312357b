//! Fuzzes every decoder of a manifest with randomly changed bytes.
//!
//! None panics, and an accepted input is encoded to the same bytes.

use super::bytes::{Bytes, Decoded, Reader};
use super::records;
use super::rows::{self, SavedBody, SavedItem, SavedPart};
use super::sent;
use super::summary::{Summary, TableSummary};
use crate::chunk::Compression;
use crate::item::{Cells, Pattern, PatternColumn};
use crate::spec::{ColumnSignature, ColumnSpec, DType, Signature, Structure, StructureKey};
use crate::table::limiter::{Counters, Limiter};
use crate::table::selector::SelectorOptions;
use crate::table::{Stats, TableOptions};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

/// The number of inputs for each decoder.
const INPUTS: usize = 40_000;

/// Changes some bytes, cuts some off, or repeats some.
fn change(bytes: &[u8], random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..=random.next_u32() % 4 {
        let at = random.next_u32() as usize % changed.len().max(1);
        match random.next_u32() % 8 {
            0 => changed.truncate(at),
            1 => changed.extend_from_within(at..),
            2 | 3 if !changed.is_empty() => changed[at] = [0, 1, 0x7f, 0xff][random.next_u32() as usize % 4],
            _ if !changed.is_empty() => changed[at] ^= 1 << (random.next_u32() % 8),
            _ => {}
        }
    }
    changed
}

/// Decodes `INPUTS` changed forms of `whole`; a decoded value must encode to the same bytes.
fn fuzz<T>(whole: &T, decode: impl Fn(&mut Reader<'_>) -> Decoded<T>, encode: impl Fn(&mut Bytes, &T)) {
    let mut bytes = Bytes::default();
    encode(&mut bytes, whole);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..INPUTS {
        let input = change(&bytes.0, &mut random);
        let mut reader = Reader::new(&input);
        match decode(&mut reader).and_then(|value| reader.end().map(|()| value)) {
            Ok(value) => {
                let mut again = Bytes::default();
                encode(&mut again, &value);
                assert_eq!(again.0, input);
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > INPUTS / 100 && refused > INPUTS / 100, "{taken} taken, {refused} refused");
}

fn structure() -> Structure {
    let fields = vec![("a".to_owned(), Structure::Leaf), ("b".to_owned(), Structure::Leaf)];
    let record = Structure::Record { dataclass: false, module: "m".to_owned(), name: "N".to_owned(), fields };
    let inner = Structure::Tuple(vec![record, Structure::List(vec![Structure::Leaf])]);
    Structure::Dict(vec![(StructureKey::Int(-1), inner), (StructureKey::Str("é".to_owned()), Structure::Leaf)])
}

#[test]
fn patterns() {
    let column = |cells: Cells, squeeze| PatternColumn {
        spec: ColumnSpec { path: "obs/pixels".to_owned(), dtype: DType::Float32, shape: vec![2, 3] },
        part: 1,
        column: 2,
        cells,
        squeeze,
        stack_axis: 1,
    };
    let list = Cells::List([0, 1, 1].into());
    let columns = [column(list, false), column(Cells::range(-3, 4), false), column(Cells::one(2), true)];
    let columns = [columns.to_vec(), vec![column(Cells::one(0), true)]].concat();
    let whole = Pattern { columns: columns.into(), structure: structure(), timestep: false, alike: false };
    fuzz(&vec![whole], records::patterns, Bytes::record);
}

fn options() -> TableOptions {
    let column = ColumnSignature { path: "x".to_owned(), dtype: DType::Str, shape: vec![None, Some(7)] };
    TableOptions {
        name: "table".to_owned(),
        sampler: SelectorOptions::Prioritized { exponent: 0.6 },
        remover: SelectorOptions::Fifo,
        max_size: 100,
        limiter: Limiter::new(2.0, 1, -5.0, 5.0).unwrap(),
        max_times_sampled: 0,
        signature: Some(Signature { columns: vec![column; 2], structure: structure() }),
        max_bytes: Some(9),
        compression: Compression::Auto,
        shard: 0,
        sampler_seed: 0,
        constructed: None,
        remover_seed: 0,
        extensions: Vec::new(),
    }
}

#[test]
fn options_of_tables() {
    fuzz(&options(), |from| from.record(), Bytes::record);
}

#[test]
fn heads() {
    let table = TableSummary {
        options: options(),
        counters: Counters { inserts: 7, samples: 8, deletes: 9 },
        stats: Stats::default(),
        size: 7,
        order: 1 << 40,
        allocated: 300,
    };
    let whole = Summary {
        path: Default::default(),
        number: 3,
        created: Duration::from_nanos(1 << 60),
        clock: Duration::from_nanos(70_000),
        num_chunks: 1000,
        chunk_bytes: 1 << 33,
        manifest_bytes: 0,
        segments: vec![1, 2, 300],
        journal: None,
        tables: vec![table; 2],
    };
    fuzz(&whole, |from| from.record(), Bytes::record);
}

#[test]
fn spans() {
    let part = || SavedPart { chunks: vec![1, 2, 300], starts: vec![-4, 0, 4, 1 << 40] };
    let encode = |out: &mut Bytes, span: &Vec<SavedPart>| {
        out.all(span, |out, part| {
            out.all(&part.chunks, |out, chunk| out.u32(*chunk));
            out.all(&part.starts, |out, start| out.u64(*start as u64));
        });
    };
    fuzz(&vec![part(), part()], rows::span, encode);
}

#[test]
fn episodes_of_spans() {
    fuzz(&(7, [1, u32::MAX].into()), rows::episodes, rows::put_episodes);
}

#[test]
fn senders() {
    let keys = |keys: [i64; 2]| keys.into_iter().map(crate::item::Key::from).collect();
    fuzz(&([7; 16], vec![(1, keys([2, 3])), (9, keys([4, i64::MAX]))]), sent::sender, sent::put_sender);
}

#[test]
fn items() {
    let whole = SavedItem {
        slot: 1,
        generation: 2,
        priority: 3.0,
        version: 4,
        times_sampled: 5,
        inserted_at: 6,
        inserted: 7,
        updated: 8,
        episode: 9,
        anchor: 10,
        pattern: 11,
        body: SavedBody::Span(12),
    };
    fuzz(&whole, rows::item, rows::put_saved);
}
