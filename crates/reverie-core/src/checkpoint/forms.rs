//! Patterns, structures and options as bytes, and back.

use super::bytes::{Bytes, Decoded, Reader};
use crate::chunk::Compression;
use crate::item::{Cells, Pattern, PatternColumn};
use crate::spec::{ColumnSignature, ColumnSpec, DType, Key, Signature, Structure};
use crate::table::limiter::{Counters, Limiter};
use crate::table::selector::SelectorOptions;
use crate::table::{AGE_BUCKETS, Stats, TableOptions};

/// Structures nested more deeply than this are refused: no program has them.
const DEEPEST: usize = 256;

fn put_structure(out: &mut Bytes, structure: &Structure) {
    let put_all = |out: &mut Bytes, children: &[Structure]| out.all(children, put_structure);
    match structure {
        Structure::Leaf => out.u8(0),
        Structure::Dict(entries) => {
            out.u8(1);
            out.all(entries, |out, (key, child)| {
                match key {
                    Key::Int(key) => {
                        out.u8(0);
                        out.u64(*key as u64);
                    }
                    Key::Str(key) => {
                        out.u8(1);
                        out.text(key);
                    }
                }
                put_structure(out, child);
            });
        }
        Structure::List(children) => {
            out.u8(2);
            put_all(out, children);
        }
        Structure::Tuple(children) => {
            out.u8(3);
            put_all(out, children);
        }
        Structure::Record { dataclass, module, name, fields } => {
            out.u8(4);
            out.bool(*dataclass);
            out.text(module);
            out.text(name);
            out.all(fields, |out, (name, child)| {
                out.text(name);
                put_structure(out, child);
            });
        }
    }
}

fn structure(from: &mut Reader<'_>, depth: usize) -> Decoded<Structure> {
    if depth > DEEPEST {
        return Err(format!("a structure nested more than {DEEPEST} times"));
    }
    let child = |from: &mut Reader<'_>| structure(from, depth + 1);
    Ok(match from.u8()? {
        0 => Structure::Leaf,
        1 => Structure::Dict(from.all(|from| {
            let key = match from.u8()? {
                0 => Key::Int(from.u64()? as i64),
                1 => Key::Str(from.text()?),
                other => return Err(format!("a dictionary's key of kind {other}")),
            };
            Ok((key, child(from)?))
        })?),
        2 => Structure::List(from.all(child)?),
        3 => Structure::Tuple(from.all(child)?),
        4 => {
            let (dataclass, module, name) = (from.bool()?, from.text()?, from.text()?);
            let fields = from.all(|from| Ok((from.text()?, child(from)?)))?;
            Structure::Record { dataclass, module, name, fields }
        }
        other => return Err(format!("a structure of kind {other}")),
    })
}

fn put_dtype(out: &mut Bytes, dtype: DType) {
    out.text(dtype.name());
}

fn dtype(from: &mut Reader<'_>) -> Decoded<DType> {
    let name = from.text()?;
    DType::from_name(&name).ok_or_else(|| format!("the unknown dtype '{name}'"))
}

pub(super) fn put_pattern(out: &mut Bytes, pattern: &Pattern) {
    out.all(&pattern.columns, |out, column| {
        out.text(&column.spec.path);
        put_dtype(out, column.spec.dtype);
        out.all(&column.spec.shape, |out, size| out.u64(*size as u64));
        out.u32(column.part);
        out.u32(column.column);
        match &column.cells {
            Cells::Range { start, step, len } => {
                out.u8(0);
                out.u32(*start as u32);
                out.u32(*step as u32);
                out.u32(*len);
            }
            Cells::List(list) => {
                out.u8(1);
                out.all(list, |out, cell| out.u32(*cell as u32));
            }
        }
        out.bool(column.squeeze);
        out.u8(column.stack_axis);
    });
    put_structure(out, &pattern.structure);
    out.bool(pattern.timestep);
}

fn cells(from: &mut Reader<'_>) -> Decoded<Cells> {
    match from.u8()? {
        0 => {
            let (start, step, len) = (from.i32()?, from.i32()?, from.u32()?);
            if step == 0 {
                return Err("cells without a step between them".to_owned());
            }
            Ok(Cells::Range { start, step, len })
        }
        1 => Ok(Cells::List(from.all(Reader::i32)?.into())),
        other => Err(format!("cells of kind {other}")),
    }
}

pub(super) fn pattern(from: &mut Reader<'_>) -> Decoded<Pattern> {
    let columns = from.all(|from| {
        let spec = ColumnSpec { path: from.text()?, dtype: dtype(from)?, shape: from.all(Reader::size)? };
        // Refuses a size beyond any memory; later code computes the bytes of a cell without a check.
        let bytes = spec.shape.iter().try_fold(16_usize, |bytes, size| bytes.checked_mul(*size));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(format!("a cell of the shape {:?}", spec.shape));
        }
        let (part, column, cells) = (from.u32()?, from.u32()?, cells(from)?);
        let (squeeze, stack_axis) = (from.bool()?, from.u8()?);
        if squeeze && cells.len() != 1 {
            return Err(format!("{} cells without a time axis", cells.len()));
        }
        Ok(PatternColumn { spec, part, column, cells, squeeze, stack_axis })
    })?;
    let (structure, timestep) = (structure(from, 0)?, from.bool()?);
    if structure.num_leaves() != columns.len() {
        return Err(format!("{} columns for a structure of {}", columns.len(), structure.num_leaves()));
    }
    Ok(Pattern { columns: columns.into(), structure, timestep })
}

fn put_signature(out: &mut Bytes, signature: &Signature) {
    out.all(&signature.columns, |out, column| {
        out.text(&column.path);
        put_dtype(out, column.dtype);
        out.all(&column.shape, |out, size| out.option(size.as_ref(), |out, size| out.u64(*size as u64)));
    });
    put_structure(out, &signature.structure);
}

fn signature(from: &mut Reader<'_>) -> Decoded<Signature> {
    let columns = from.all(|from| {
        let (path, dtype) = (from.text()?, dtype(from)?);
        Ok(ColumnSignature { path, dtype, shape: from.all(|from| from.option(Reader::size))? })
    })?;
    Ok(Signature { columns, structure: structure(from, 0)? })
}

fn put_selector(out: &mut Bytes, selector: &SelectorOptions) {
    let (number, exponent) = selector.parts();
    out.u8(number);
    out.f64(exponent);
}

fn selector(from: &mut Reader<'_>) -> Decoded<SelectorOptions> {
    let (number, exponent) = (from.u8()?, from.f64()?);
    let options =
        SelectorOptions::from_parts(number, exponent).ok_or_else(|| format!("a selector of kind {number}"))?;
    if options.parts().1.to_bits() != exponent.to_bits() {
        return Err(format!("the exponent {exponent} of a selector that has none"));
    }
    options.validate().map(|()| options).map_err(|error| error.to_string())
}

/// The names that users know, in the order of their numbers.
const COMPRESSIONS: [Compression; 4] = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Auto];

/// Writes all options except the seeds and the extensions.
///
/// The next process draws new seeds, and a table has its extensions from its constructor.
pub(super) fn put_options(out: &mut Bytes, options: &TableOptions) {
    out.text(&options.name);
    put_selector(out, &options.sampler);
    put_selector(out, &options.remover);
    out.u64(options.max_size);
    let limiter = &options.limiter;
    out.f64(limiter.samples_per_insert());
    out.u64(limiter.min_size_to_sample());
    out.f64(limiter.min_diff());
    out.f64(limiter.max_diff());
    out.u32(options.max_times_sampled);
    out.option(options.signature.as_ref(), put_signature);
    out.option(options.max_bytes.as_ref(), |out, bytes| out.u64(*bytes));
    let compression = COMPRESSIONS.iter().position(|known| *known == options.compression);
    out.u8(compression.expect("every compression is listed") as u8);
    out.u8(options.shard);
}

pub(super) fn options(from: &mut Reader<'_>) -> Decoded<TableOptions> {
    let (name, sampler, remover, max_size) = (from.text()?, selector(from)?, selector(from)?, from.u64()?);
    let (ratio, min_size, min_diff, max_diff) = (from.f64()?, from.u64()?, from.f64()?, from.f64()?);
    let limiter = Limiter::new(ratio, min_size, min_diff, max_diff).map_err(|error| error.to_string())?;
    let (max_times_sampled, signature) = (from.u32()?, from.option(signature)?);
    let (max_bytes, compression, shard) = (from.option(Reader::u64)?, from.u8()?, from.u8()?);
    let compression = *COMPRESSIONS.get(usize::from(compression)).ok_or("an unknown compression")?;
    let (sampler_seed, remover_seed) = (0, 0);
    Ok(TableOptions {
        name,
        sampler,
        remover,
        max_size,
        limiter,
        max_times_sampled,
        signature,
        max_bytes,
        compression,
        shard,
        sampler_seed,
        remover_seed,
        extensions: Vec::new(),
    })
}

pub(super) fn put_counts(out: &mut Bytes, counters: &Counters, stats: &Stats) {
    for count in [counters.inserts, counters.samples, counters.deletes] {
        out.u64(count);
    }
    for count in [
        stats.evicted,
        stats.sampled_unique,
        stats.updated,
        stats.stale_updates,
        stats.stale_deletes,
        stats.deleted_episodes,
    ] {
        out.u64(count);
    }
    out.all(&stats.age_histogram, |out, count| out.u64(*count));
}

/// The counts of present items are computed from the items.
pub(super) fn counts(from: &mut Reader<'_>) -> Decoded<(Counters, Stats)> {
    let counters = Counters { inserts: from.u64()?, samples: from.u64()?, deletes: from.u64()? };
    let mut stats = Stats {
        evicted: from.u64()?,
        sampled_unique: from.u64()?,
        updated: from.u64()?,
        stale_updates: from.u64()?,
        stale_deletes: from.u64()?,
        deleted_episodes: from.u64()?,
        ..Stats::default()
    };
    let ages = from.all(Reader::u64)?;
    stats.age_histogram = ages.try_into().map_err(|_| format!("a histogram without {AGE_BUCKETS} ages"))?;
    Ok((counters, stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nest() -> Structure {
        Structure::Dict(vec![
            (Key::Int(-3), Structure::List(vec![Structure::Leaf, Structure::Tuple(vec![Structure::Leaf])])),
            (
                Key::Str("obs".to_owned()),
                Structure::Record {
                    dataclass: true,
                    module: "a.b".to_owned(),
                    name: "Seen".to_owned(),
                    fields: vec![("pixels".to_owned(), Structure::Leaf)],
                },
            ),
        ])
    }

    fn read<T>(bytes: &Bytes, read: impl FnOnce(&mut Reader<'_>) -> Decoded<T>) -> Decoded<T> {
        let mut reader = Reader::new(&bytes.0);
        let value = read(&mut reader)?;
        reader.end().map(|()| value)
    }

    #[test]
    fn a_pattern_comes_back_as_it_was() {
        let column = |path: &str, dtype, cells: Cells| PatternColumn {
            spec: ColumnSpec { path: path.to_owned(), dtype, shape: vec![84, 4] },
            part: 1,
            column: 2,
            squeeze: cells.len() == 1,
            cells,
            stack_axis: 3,
        };
        let columns = [
            column("-3/0", DType::Float8E5M2Fnuz, Cells::one(-4)),
            column("-3/1/0", DType::Str, Cells::List([0, 0, -1].into())),
            column("obs/pixels", DType::UInt8, Cells::Range { start: 7, step: -2, len: 4 }),
        ];
        let want = Pattern { columns: columns.into(), structure: nest(), timestep: true };
        let mut bytes = Bytes::default();
        put_pattern(&mut bytes, &want);
        assert_eq!(read(&bytes, pattern).unwrap(), want);
        for end in 0..bytes.0.len() {
            assert!(read(&Bytes(bytes.0[..end].to_vec()), pattern).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn options_come_back_as_they_were() {
        let shape = vec![None, Some(3)];
        let columns = vec![ColumnSignature { path: "x".to_owned(), dtype: DType::BFloat16, shape }; 3];
        let mut want = TableOptions {
            name: "täble".to_owned(),
            sampler: SelectorOptions::Stratified { exponent: 0.6 },
            remover: SelectorOptions::MinHeap,
            max_size: 5,
            limiter: Limiter::new(0.5, 3, -2.0, f64::INFINITY).unwrap(),
            max_times_sampled: 9,
            signature: Some(Signature { columns, structure: nest() }),
            max_bytes: Some(1 << 40),
            compression: Compression::Zstd,
            shard: 63,
            sampler_seed: 0,
            remover_seed: 0,
            extensions: Vec::new(),
        };
        let mut bytes = Bytes::default();
        put_options(&mut bytes, &want);
        let got = read(&bytes, options).unwrap();
        assert_eq!(format!("{got:?}"), format!("{want:?}"));
        want.signature = None;
        assert_ne!(format!("{got:?}"), format!("{want:?}"));
    }

    #[test]
    fn a_structure_nested_beyond_reason_is_refused_before_it_fills_the_stack() {
        let mut deep = Bytes::default();
        for _ in 0..1_000_000 {
            deep.u8(2);
            deep.u32(1);
        }
        assert!(read(&deep, |from| structure(from, 0)).unwrap_err().contains("nested"));
    }
}
