//! Core types as messages and back: nothing is lost, and everything that arrives is checked.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use reverie_core::Error;
use reverie_core::batch::BatchLayout;
use reverie_core::batch::{OutputArray, Ragged, Role};
use reverie_core::chunk::Compression;
use reverie_core::item::{Cells, Key, Pattern, PatternColumn};
use reverie_core::spec::{ColumnSignature, ColumnSpec, DType, Signature, Structure, StructureKey};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, CopyStats, InsertOnSample, Stats, TableInfo, TableOptions, Times};
use reverie_net::convert::{batch, error, item, structure, table};
use reverie_net::proto;
use std::collections::BTreeMap;
use std::time::Duration;

fn keys() -> impl Strategy<Value = StructureKey> {
    prop_oneof![any::<i64>().prop_map(StructureKey::Int), "[a-cé/]{0,3}".prop_map(StructureKey::Str)]
}

fn structures() -> impl Strategy<Value = Structure> {
    Just(Structure::Leaf).prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::btree_map(keys(), inner.clone(), 0..4)
                .prop_map(|entries: BTreeMap<_, _>| Structure::Dict(entries.into_iter().collect())),
            vec(inner.clone(), 0..4).prop_map(Structure::List),
            vec(inner.clone(), 0..4).prop_map(Structure::Tuple),
            (any::<bool>(), "[a-z.]{0,4}", "[A-Z]{1,2}", proptest::collection::btree_map("[a-z]{1,2}", inner, 0..4))
                .prop_map(|(dataclass, module, name, fields)| Structure::Record {
                    dataclass,
                    module,
                    name,
                    fields: fields.into_iter().collect()
                }),
        ]
    })
}

fn dtypes() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL.to_vec())
}

fn specs() -> impl Strategy<Value = ColumnSpec> {
    ("[a-z/]{0,5}", dtypes(), vec(0_usize..9, 0..4)).prop_map(|(path, dtype, shape)| ColumnSpec { path, dtype, shape })
}

fn cells() -> impl Strategy<Value = Cells> {
    let step = (-5_i32..5).prop_map(|step| if step == 0 { 7 } else { step });
    prop_oneof![
        (any::<i32>(), step, 1_u32..2000).prop_map(|(start, step, len)| Cells::Range { start, step, len }),
        vec(any::<i32>(), 1..9).prop_map(|list| Cells::List(list.into())),
    ]
}

fn pattern_columns() -> impl Strategy<Value = PatternColumn> {
    (specs(), any::<u32>(), any::<u32>(), cells(), any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |(spec, part, column, cells, squeeze, axis)| {
            let squeeze = squeeze && cells.len() == 1;
            let stack_axis = if squeeze { 0 } else { axis.index(spec.shape.len() + 1) as u8 };
            // Some have cells of any size.
            let spec = spec.variable().filter(|_| part % 2 == 0).unwrap_or(spec);
            PatternColumn { spec, part, column, cells, squeeze, stack_axis }
        },
    )
}

fn patterns() -> impl Strategy<Value = Pattern> {
    (structures(), any::<[bool; 2]>())
        .prop_filter("an item has columns", |(structure, _)| structure.num_leaves() > 0)
        .prop_flat_map(|(structure, [timestep, alike])| {
            let leaves = structure.num_leaves();
            vec(pattern_columns(), leaves..=leaves).prop_map(move |columns| Pattern {
                columns: columns.into(),
                structure: structure.clone(),
                timestep,
                alike,
            })
        })
}

fn signatures() -> impl Strategy<Value = Signature> {
    structures().prop_flat_map(|structure| {
        let column = ("[a-z/]{0,5}", dtypes(), vec(proptest::option::of(0_usize..1 << 40), 0..4))
            .prop_map(|(path, dtype, shape)| ColumnSignature { path, dtype, shape });
        let leaves = structure.num_leaves();
        vec(column, leaves..=leaves).prop_map(move |columns| Signature { columns, structure: structure.clone() })
    })
}

fn limiters() -> impl Strategy<Value = Limiter> {
    prop_oneof![
        (1_u64..50).prop_map(|size| Limiter::min_size(size).unwrap()),
        (1_u64..50).prop_map(|size| Limiter::new(1.0, 1, 0.0, size as f64).unwrap()),
        (0.1_f64..8.0, 1_u64..50)
            .prop_map(|(ratio, size)| { Limiter::new(ratio, size, f64::NEG_INFINITY, f64::INFINITY).unwrap() }),
    ]
}

fn table_options() -> impl Strategy<Value = TableOptions> {
    let numbers = (0..SelectorOptions::COUNT, -2.0_f64..2.0);
    let each = numbers.prop_map(|(number, exponent)| SelectorOptions::from_parts(number, exponent).unwrap());
    // Draws that are spread out are for tables without a limit of draws, and for samplers.
    let stratified = |options: &SelectorOptions| matches!(options, SelectorOptions::Stratified { .. });
    let remover = each.clone().prop_filter("a sampler alone is stratified", move |options| !stratified(options));
    let sampler =
        (each, any::<u32>()).prop_map(move |(options, draws)| (options, if stratified(&options) { 0 } else { draws }));
    let compression = proptest::sample::select(Compression::ALL.to_vec());
    (
        "[a-z]{1,5}",
        sampler,
        remover,
        50_u64..1 << 20,
        limiters(),
        proptest::option::of(signatures()),
        proptest::option::of(1_u64..),
        compression,
        0_u8..64,
        vec(("[a-z]{1,5}", proptest::option::of(0_u64..1 << 40)), 0..3),
    )
        .prop_map(
            |(
                name,
                (sampler, max_times_sampled),
                remover,
                max_size,
                limiter,
                signature,
                max_bytes,
                compression,
                shard,
                extensions,
            )| {
                TableOptions {
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
                    sampler_seed: 0,
                    constructed: None,
                    remover_seed: 0,
                    extensions: extensions
                        .into_iter()
                        .map(|(target, timeout)| {
                            // Powers of two: as seconds, they are exact.
                            InsertOnSample {
                                target,
                                timeout: timeout.map(|n| Duration::new(n >> 9, (n as u32 & 511) * 1_953_125)),
                            }
                        })
                        .collect(),
                }
            },
        )
}

fn errors() -> impl Strategy<Value = Error> {
    let text = || "[a-z ']{0,9}";
    prop_oneof![
        text().prop_map(Error::InvalidArgument),
        (text(), vec(text(), 0..3)).prop_map(|(name, known)| Error::UnknownTable { name, known }),
        (text(), text(), text()).prop_map(|(path, got, want)| Error::Signature { path, got, want }),
        (text(), text()).prop_map(|(path, reason)| Error::Ragged { path, reason }),
        (text(), any::<u64>(), any::<u64>(), text())
            .prop_map(|(what, needed, budget, hint)| { Error::ResourceExhausted { what, needed, budget, hint } }),
        any::<u64>().prop_map(|needed| Error::OutOfMemory { needed }),
        text().prop_map(|name| Error::Closed { name }),
        (text(), any::<i64>()).prop_map(|(table, key)| Error::UnknownKey { table, key: Key::from(key) }),
        text().prop_map(Error::Unavailable),
        text().prop_map(Error::Unauthenticated),
        text().prop_map(Error::Protocol),
        text().prop_map(Error::Deadline),
        (vec(any::<i64>(), 0..3), text())
            .prop_map(|(keys, why)| { Error::NotCommitted { keys: keys.into_iter().map(Key::from).collect(), why } }),
        (vec(any::<i64>(), 1..3), text()).prop_map(|(keys, reason)| {
            let error = Box::new(Error::InvalidArgument(reason));
            Error::PartlyInserted { keys: keys.into_iter().map(Key::from).collect(), error }
        }),
        text().prop_map(Error::Damaged),
        (text(), any::<u64>(), text()).prop_map(|(path, offset, what)| { Error::DamagedFile { path, what, offset } }),
        (text(), text()).prop_map(|(path, reason)| Error::Storage { path, action: "save to".into(), reason }),
    ]
}

fn outputs() -> impl Strategy<Value = OutputArray> {
    (specs(), 0_usize..9).prop_map(|(spec, width)| {
        let unit = if spec.dtype == DType::Str { 4 } else { 1 };
        let itemsize = spec.dtype.size().unwrap_or(unit * width);
        OutputArray { path: spec.path, dtype: spec.dtype, itemsize, shape: spec.shape, role: Role::Column }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_structure_comes_back_as_it_went(structure in structures()) {
        prop_assert_eq!(structure::decode(structure::encode(&structure)).unwrap(), structure);
    }

    #[test]
    fn a_form_comes_back_as_it_went(pattern in patterns(), number in any::<u32>()) {
        prop_assert_eq!(item::decode_pattern(item::encode_pattern(number, &pattern)).unwrap(), (number, pattern));
    }

    #[test]
    fn table_options_come_back_as_they_went_but_for_the_seeds(options in table_options()) {
        let back = table::decode_options(table::encode_options(&options)).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{options:?}"));
    }

    #[test]
    fn a_signature_comes_back_as_it_went(signature in signatures()) {
        prop_assert_eq!(table::decode_signature(table::encode_signature(&signature)).unwrap(), signature);
    }

    #[test]
    fn an_error_comes_back_as_it_went(error in errors()) {
        prop_assert_eq!(error::decode(error::encode(&error)), error);
    }

    #[test]
    fn a_change_comes_back_as_it_went(
        max_size in any::<Option<u64>>(), limiter in proptest::option::of(limiters()), times in any::<Option<u32>>()
    ) {
        let (name, change) = table::decode_change(table::encode_change(
            "t", &Change { max_size, limiter, max_times_sampled: times })).unwrap();
        prop_assert_eq!((name.as_str(), change.max_size, change.limiter, change.max_times_sampled),
            ("t", max_size, limiter, times));
    }

    #[test]
    fn figures_come_back_as_they_went(options in table_options(), counts in vec(any::<u64>(), 64), ms in vec(0_u64..1 << 40, 5)) {
        let times = ms.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        let copies = (0..options.extensions.len() as u64)
            .map(|n| CopyStats { inserted: counts[n as usize], dropped: counts[3] ^ n, waiting: counts[4] ^ n })
            .collect();
        let info = TableInfo {
            options,
            counters: reverie_core::table::limiter::Counters { inserts: counts[48], samples: counts[49], deletes: counts[50] },
            size: counts[51],
            bytes: counts[52],
            num_episodes: counts[53],
            stats: Stats {
                evicted: counts[54], sampled_present: counts[55], sampled_unique: counts[56], updated: counts[57],
                stale_updates: counts[58], stale_deletes: counts[59], single_steps: counts[60],
                deleted_episodes: counts[61], age_histogram: counts[..48].try_into().unwrap(),
                // A number that a float holds exactly.
                age_sum: u128::from(counts[62] >> 11), times_histogram: counts[20..38].try_into().unwrap(), draws_of_left: counts[47],
            },
            times: Times {
                inserting: times[0], sampling: times[1], inserts_blocked: times[2], samples_blocked: times[3], alive: times[4],
            },
            pending_inserts: counts[62],
            pending_samples: counts[63],
            leased: counts[63] ^ 5,
            max_priority: ms[0] as f64,
            copies,
        };
        let back = table::decode_info(table::encode_info(&info)).unwrap();
        let micros = |times: Times| [times.inserting, times.sampling, times.inserts_blocked, times.samples_blocked, times.alive]
            .map(|time| (time + Duration::from_nanos(500_000)).as_millis());
        prop_assert_eq!(micros(back.times), micros(info.times));
        let plain = |info: TableInfo| format!("{:?}", TableInfo { times: Times::default(), ..info });
        prop_assert_eq!(plain(back), plain(info));
    }

    #[test]
    fn the_tally_of_a_shard_is_decoded_as_it_was_encoded(
        shard in any::<u8>(), incarnation in any::<u64>(), counts in vec(0_u64..1 << 60, 5),
        total in prop_oneof![0.0_f64..1e300, Just(f64::INFINITY)],
        smallest_probability in proptest::option::of(1e-9_f64..=1.0), ration in any::<Option<u64>>(),
    ) {
        let counters = reverie_core::table::limiter::Counters {
            inserts: counts[0] + counts[1], samples: counts[2], deletes: counts[1],
        };
        let mass = reverie_core::table::selector::Mass { total, zeros: counts[3] };
        let tally = reverie_core::table::Tally {
            shard, incarnation, size: counts[0], mass, smallest_probability, counters, ration, waiting_inserts: counts[4],
            // A number that a float holds exactly.
            now: Duration::from_millis(u64::from(shard) * 125),
        };
        let seen = tally.seen(counts[3]);
        prop_assert_eq!(table::decode_seen(&table::encode_seen(&seen)), seen);
        prop_assert_eq!(table::decode_tally(table::encode_tally(&tally)).unwrap(), tally);
        let message = table::encode_tally(&tally);
        for broken in [
            proto::Tally { mass: f64::NAN, ..message },
            proto::Tally { mass: -1.0, ..message },
            proto::Tally { now: -1.0, ..message },
            proto::Tally { smallest_probability: Some(1.5), ..message },
            proto::Tally { size: message.size + 1, ..message },
            proto::Tally { shard: 256, ..message },
        ] {
            prop_assert!(table::decode_tally(broken).is_err());
        }
    }

    #[test]
    fn the_head_of_a_batch_comes_back_as_it_went(
        structure in structures(), columns in vec(outputs(), 0..9), timestep in any::<bool>(), of in any::<Option<prop::sample::Index>>()
    ) {
        let leaves = structure.num_leaves();
        let mut outputs: Vec<OutputArray> = columns.into_iter().cycle().take(leaves).collect();
        prop_assume!(outputs.len() == leaves);
        let of = of.filter(|_| leaves > 0).map(|of| of.index(leaves));
        for role in [Role::Mask(of), Role::Lengths(of)] {
            outputs.push(OutputArray { path: "p".to_owned(), dtype: DType::Int64, itemsize: 8, shape: vec![3], role });
        }
        let head = batch::decode_head(batch::encode_head(&outputs, &structure, leaves, timestep)).unwrap();
        prop_assert_eq!((head.outputs, head.structure, head.num_columns, head.timestep), (outputs, structure, leaves, timestep));
    }

    #[test]
    fn read_options_come_back_as_they_went(paths in vec("[a-z]{1,3}", 1..3)) {
        for ragged in [Ragged::Refuse, Ragged::Pad, Ragged::Values] {
            let back = batch::decode_read_options(Some(batch::encode_read_options(Some(&paths), ragged))).unwrap();
            prop_assert_eq!(back, (Some(paths.clone()), ragged));
            let back = batch::decode_read_options(Some(batch::encode_read_options(None, ragged))).unwrap();
            prop_assert_eq!(back, (None, ragged));
        }
    }

    #[test]
    fn messages_that_were_tampered_with_are_refused_or_usable_but_never_a_panic(
        pattern in patterns(), options in table_options(), outputs in vec(outputs(), 1..4),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let tamper = |mut bytes: Vec<u8>| {
            for (at, byte) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes
        };
        if let Ok(message) = proto::PatternDef::decode(&tamper(item::encode_pattern(1, &pattern).encode_to_vec())[..])
            && let Ok((number, pattern)) = item::decode_pattern(message) {
                // A pattern that is accepted can be counted and sent on.
                let total: usize = pattern.columns.iter().map(|column| column.spec.elements().max(column.cells.len())).max().unwrap();
                prop_assert!(total < usize::MAX);
                prop_assert_eq!(item::decode_pattern(item::encode_pattern(number, &pattern)).unwrap().1, pattern);
            }
        if let Ok(message) = proto::TableOptions::decode(&tamper(table::encode_options(&options).encode_to_vec())[..])
            && let Ok(options) = table::decode_options(message) {
                prop_assert!(options.validate().is_ok());
            }
        let structure = Structure::List(vec![Structure::Leaf; outputs.len()]);
        let head = batch::encode_head(&outputs, &structure, outputs.len(), false).encode_to_vec();
        if let Ok(message) = proto::BatchHead::decode(&tamper(head)[..])
            && let Ok(head) = batch::decode_head(message) {
                let bytes: usize = head.outputs.iter().map(OutputArray::bytes).sum();
                prop_assert!(BatchLayout::new(3, &head.outputs).is_ok_and(|layout| layout.size_bytes >= bytes));
            }
    }
}
