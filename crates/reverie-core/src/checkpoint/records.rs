//! Records: values of named fields as MessagePack, and the checks of the values.
//!
//! The types themselves define how they are written (`serde`). A field that is added later is read from older files
//! where it has a default, and left out of new files where it has that value:
//! `#[serde(default, skip_serializing_if = ...)]`. Records that a table has by the thousand are packed by hand, in
//! `rows.rs`, `sent.rs` and `manifest.rs`: the names of the fields would be most of the file, and the numbers are
//! copied faster.

use super::bytes::{Bytes, Decoded, Reader};
use crate::item::{Cells, Pattern, PatternColumn};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Bytes {
    /// Appends a record, the last value of its section.
    pub(crate) fn record<T: Serialize>(&mut self, value: &T) {
        rmp_serde::encode::write_named(&mut self.0, value).expect("a record is written to memory");
    }
}

impl Reader<'_> {
    /// Reads the record that the rest of the bytes are.
    ///
    /// Refuses bytes that this version would write in another way, so that no field of a newer version is passed over.
    pub(crate) fn record<T: Serialize + DeserializeOwned>(&mut self) -> Decoded<T> {
        let bytes = self.rest();
        let value = rmp_serde::from_slice(bytes).map_err(|error| error.to_string())?;
        let mut again = Bytes(Vec::with_capacity(bytes.len()));
        again.record(&value);
        if again.0 == bytes { Ok(value) } else { Err("a record has fields that this version does not know".to_owned()) }
    }
}

/// Reads patterns.
pub(crate) fn patterns(from: &mut Reader<'_>) -> Decoded<Vec<Pattern>> {
    let patterns: Vec<Pattern> = from.record()?;
    patterns.iter().try_for_each(check_pattern)?;
    Ok(patterns)
}

fn check_pattern(pattern: &Pattern) -> Decoded<()> {
    let (columns, leaves) = (pattern.columns.len(), pattern.structure.num_leaves());
    if leaves != columns {
        return Err(format!("{columns} columns for a structure of {leaves} leaves"));
    }
    pattern.columns.iter().try_for_each(check_column)
}

fn check_column(column: &PatternColumn) -> Decoded<()> {
    let (shape, variable) = (&column.spec.shape, column.spec.is_variable());
    // Refuses a size beyond any memory; later code computes the bytes of a cell without a check.
    let bytes = shape.iter().skip(usize::from(variable)).try_fold(16_usize, |bytes, size| bytes.checked_mul(*size));
    if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(format!("a cell has the invalid shape {shape:?}"));
    }
    if matches!(column.cells, Cells::Range { step: 0, .. }) {
        return Err("a range of cells has the step 0".to_owned());
    }
    if column.squeeze && column.cells.len() != 1 {
        return Err(format!("{} cells in a column without a time axis", column.cells.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Compression;
    use crate::spec::{ColumnSignature, ColumnSpec, DType, Signature, Structure, StructureKey};
    use crate::table::TableOptions;
    use crate::table::limiter::Limiter;
    use crate::table::selector::SelectorOptions;
    use serde::Deserialize;

    fn nest() -> Structure {
        Structure::Dict(vec![
            (StructureKey::Int(-3), Structure::List(vec![Structure::Leaf, Structure::Tuple(vec![Structure::Leaf])])),
            (
                StructureKey::Str("obs".to_owned()),
                Structure::Record {
                    dataclass: true,
                    module: "a.b".to_owned(),
                    name: "Seen".to_owned(),
                    fields: vec![("pixels".to_owned(), Structure::Leaf)],
                },
            ),
        ])
    }

    fn column(path: &str, dtype: DType, cells: Cells) -> PatternColumn {
        PatternColumn {
            spec: ColumnSpec { path: path.to_owned(), dtype, shape: vec![84, 4] },
            part: 1,
            column: 2,
            squeeze: cells.len() == 1,
            cells,
            stack_axis: 3,
        }
    }

    fn read(bytes: &[u8]) -> Decoded<Vec<Pattern>> {
        patterns(&mut Reader::new(bytes))
    }

    fn written<T: Serialize>(value: &T) -> Vec<u8> {
        let mut bytes = Bytes::default();
        bytes.record(value);
        bytes.0
    }

    #[test]
    fn a_pattern_comes_back_as_it_was() {
        let columns = [
            column("-3/0", DType::Float8E5M2Fnuz, Cells::one(-4)),
            column("-3/1/0", DType::Str, Cells::List([0, 0, -1].into())),
            column("obs/pixels", DType::UInt8, Cells::Range { start: 7, step: -2, len: 4 }),
        ];
        let want = vec![Pattern { columns: columns.into(), structure: nest(), timestep: true, alike: false }];
        let bytes = written(&want);
        assert_eq!(read(&bytes).unwrap(), want);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
    }

    #[test]
    fn a_pattern_that_no_item_has_is_refused() {
        let refused = |columns: &[PatternColumn], words: &str| {
            let pattern = Pattern { columns: columns.into(), structure: Structure::Leaf, timestep: true, alike: false };
            let error = read(&written(&[pattern])).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        let valid_column = || column("", DType::Bool, Cells::one(0));
        refused(&[valid_column(), valid_column()], "2 columns for a structure of 1");
        refused(
            &[PatternColumn { cells: Cells::range(0, 2), ..valid_column() }],
            "2 cells in a column without a time axis",
        );
        refused(
            &[PatternColumn { cells: Cells::Range { start: 0, step: 0, len: 1 }, ..valid_column() }],
            "has the step 0",
        );
        let mut large = valid_column();
        large.spec.shape = vec![1 << 40, 1 << 40];
        refused(&[large], "a cell has the invalid shape");
    }

    fn options() -> TableOptions {
        let shape = vec![None, Some(3)];
        let columns = vec![ColumnSignature { path: "x".to_owned(), dtype: DType::BFloat16, shape }; 3];
        TableOptions {
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
            constructed: None,
            remover_seed: 0,
            extensions: Vec::new(),
        }
    }

    #[test]
    fn options_come_back_as_they_were() {
        let mut want = options();
        let got: TableOptions = Reader::new(&written(&want)).record().unwrap();
        assert_eq!(format!("{got:?}"), format!("{want:?}"));
        want.signature = None;
        assert_ne!(format!("{got:?}"), format!("{want:?}"));
    }

    #[test]
    fn an_option_that_no_table_has_is_refused_with_its_reason() {
        /// The fields of [`TableOptions`], unchecked.
        #[derive(Serialize, Deserialize)]
        struct UncheckedTableOptions {
            name: String,
            sampler: (u8, f64),
            remover: (u8, f64),
            max_size: u64,
            limiter: (f64, u64, f64, f64),
            max_times_sampled: u32,
            signature: Option<Signature>,
            max_bytes: Option<u64>,
            compression: String,
            shard: u8,
        }
        let refused = |change: fn(&mut UncheckedTableOptions), words: &str| {
            let mut loose: UncheckedTableOptions = Reader::new(&written(&options())).record().unwrap();
            change(&mut loose);
            let error = Reader::new(&written(&loose)).record::<TableOptions>().unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused(|options| options.sampler = (99, 0.0), "a selector of the unknown kind 99");
        refused(|options| options.sampler = (5, f64::NAN), "priority_exponent must be a finite number");
        refused(|options| options.remover = (0, 1.0), "a selector that has no exponent was given 1");
        refused(|options| options.limiter.1 = 0, "min_size_to_sample must be at least 1");
        refused(|options| options.limiter.2 = f64::NAN, "min_diff must be a number");
        refused(|options| options.compression = "Brotli".to_owned(), "Brotli");
    }

    #[test]
    fn a_field_that_this_version_does_not_know_is_refused_and_not_passed_over() {
        #[derive(Serialize)]
        struct KnownCounters {
            inserts: u64,
            samples: u64,
            deletes: u64,
        }
        #[derive(Serialize)]
        struct NewerCounters {
            inserts: u64,
            samples: u64,
            deletes: u64,
            moved: u64,
        }
        let read = |bytes: &[u8]| Reader::new(bytes).record::<crate::table::limiter::Counters>();
        assert_eq!(read(&written(&KnownCounters { inserts: 3, samples: 2, deletes: 1 })).unwrap().samples, 2);
        let newer = written(&NewerCounters { inserts: 3, samples: 2, deletes: 1, moved: 0 });
        assert!(read(&newer).unwrap_err().contains("does not know"));
    }
}
