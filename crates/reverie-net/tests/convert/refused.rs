//! Messages that are none of ours are refused, with words of what is wrong in them.

use reverie_core::Error;
use reverie_core::batch::{OutputArray, Role};
use reverie_core::item::{Cells, Pattern, PatternColumn};
use reverie_core::spec::{ColumnSpec, DType, Structure};
use reverie_net::convert::{batch, error, item, structure};
use reverie_net::proto;
use std::collections::BTreeSet;

/// A message that must be refused, and words of the refusal.
#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: reverie_core::Result<T>, words: &str) {
    match outcome {
        Err(Error::Protocol(reason)) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?} is no refusal that says '{words}'"),
    }
}

fn node(kind: proto::node::Kind) -> proto::Node {
    proto::Node { kind: Some(kind) }
}

#[test]
fn a_structure_is_refused_that_is_too_deep_or_has_too_many_nodes_or_too_few() {
    use proto::node::Kind;
    let nested = |levels: usize| {
        let mut nodes = vec![node(Kind::List(1)); levels];
        nodes.push(proto::Node { kind: None });
        proto::Structure { nodes }
    };
    assert!(structure::decode(nested(structure::MAX_DEPTH)).is_ok());
    refused(structure::decode(nested(structure::MAX_DEPTH + 1)), "nested too deeply");
    refused(structure::decode(nested(1 << 17)), "nodes");
    refused(structure::decode(proto::Structure { nodes: vec![] }), "ends before");
    refused(structure::decode(proto::Structure { nodes: vec![node(Kind::Tuple(u32::MAX))] }), "ends before");
    refused(structure::decode(proto::Structure { nodes: vec![node(Kind::List(0)); 2] }), "1 node without a parent");
}

#[test]
fn a_structure_is_refused_where_two_fields_have_one_name() {
    use proto::node::Kind;
    let key = |text: &str| proto::FieldKey { key: Some(proto::field_key::Key::Text(text.to_owned())) };
    let leaf = || proto::Node { kind: None };
    let dict = |keys: Vec<proto::FieldKey>| proto::Structure {
        nodes: vec![node(Kind::Dict(proto::Dict { keys })), leaf(), leaf()],
    };
    assert!(structure::decode(dict(vec![key("a"), key("b")])).is_ok());
    refused(structure::decode(dict(vec![key("a"), key("a")])), "\"a\"");
    refused(structure::decode(dict(vec![key("a"), proto::FieldKey { key: None }])), "has no key");
    let names = ["x", "x"].map(str::to_owned).to_vec();
    let record = node(Kind::Record(Box::new(proto::Record { names, ..Default::default() })));
    refused(structure::decode(proto::Structure { nodes: vec![record, leaf(), leaf()] }), "\"x\"");
}

#[test]
fn a_column_is_refused_whose_cells_of_any_size_have_no_width_to_tell_it() {
    let of = |dtype: &str, shape: &[u64]| proto::ColumnSpec {
        path: "a".to_owned(),
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
    };
    assert!(item::decode_spec(of("int16", &[u64::MAX, 3])).is_ok_and(|spec| spec.is_variable()));
    refused(item::decode_spec(of("int16", &[u64::MAX, 0])), "cells of [1, 0] of any size");
    refused(item::decode_spec(of("int16", &[3, u64::MAX])), "too large for the address space");
    refused(item::decode_spec(of("bytes", &[u64::MAX])), "too large for the address space");
}

fn valid_pattern() -> proto::PatternDef {
    let spec = ColumnSpec { path: "a".to_owned(), dtype: DType::Float32, shape: vec![2, 3] };
    let column = PatternColumn { spec, part: 0, column: 0, cells: Cells::one(0), squeeze: true, stack_axis: 0 };
    item::encode_pattern(
        1,
        &Pattern { columns: [column].into(), structure: Structure::Leaf, timestep: false, alike: false },
    )
}

#[test]
fn a_form_is_refused_that_no_batch_could_be_made_of() {
    use proto::pattern_column::Cells as Wire;
    type Edit = fn(&mut proto::PatternColumn);
    let edits: [(Edit, &str); 11] = [
        (|column| column.spec = None, "spec"),
        (|column| column.cells = None, "cells"),
        (|column| column.spec.as_mut().unwrap().dtype = "object".to_owned(), "dtype"),
        (|column| column.spec.as_mut().unwrap().shape = vec![1 << 40, 1 << 40], "too large for the address space"),
        (|column| column.spec.as_mut().unwrap().shape = vec![0, 1 << 40, 1 << 40], "too large for the address space"),
        (|column| column.spec.as_mut().unwrap().shape = vec![1; 65], "axes"),
        (|column| column.cells = Some(Wire::Range(proto::CellRange { start: 0, step: 0, len: 1 })), "which is invalid"),
        (
            |column| column.cells = Some(Wire::Range(proto::CellRange { start: 0, step: 1, len: u32::MAX })),
            "which is invalid",
        ),
        (|column| column.cells = Some(Wire::Range(proto::CellRange { start: 0, step: 1, len: 2 })), "squeezed: true"),
        (|column| column.cells = Some(Wire::List(proto::CellList::default())), "0 cells"),
        (|column| (column.squeeze, column.stack_axis) = (false, 3), "axis 3 of 2"),
    ];
    assert!(item::decode_pattern(valid_pattern()).is_ok());
    for (edit, words) in edits {
        let mut message = valid_pattern();
        edit(&mut message.columns[0]);
        refused(item::decode_pattern(message), words);
    }
    refused(item::decode_pattern(proto::PatternDef { columns: vec![], ..valid_pattern() }), "0 columns");
}

#[test]
fn the_head_of_a_batch_is_refused_whose_arrays_could_not_be_read() {
    type Edit = fn(&mut proto::BatchHead);
    let edits: [(Edit, &str); 8] = [
        (|head| head.outputs[0].itemsize = 3, "elements of 3 bytes"),
        (|head| head.outputs[0].dtype = "str".to_owned(), "elements of 2 bytes"),
        (|head| head.outputs[0].role = 9, "unknown role 9"),
        (|head| head.outputs[0].role = 1, "columns of a batch are not the first"),
        (|head| head.outputs[1].of = Some(1), "refers to array 1, and the batch has"),
        (|head| head.outputs[0].shape = vec![1 << 62, 4], "too large for the address space"),
        (|head| head.num_columns = 3, "2 arrays cannot have 3 columns"),
        (|head| head.structure = None, "structure"),
    ];
    let array = |role| OutputArray { path: "a".to_owned(), dtype: DType::Int16, itemsize: 2, shape: vec![2], role };
    let valid =
        || batch::encode_head(&[array(Role::Column), array(Role::Lengths(Some(0)))], &Structure::Leaf, 1, false);
    assert!(batch::decode_head(valid()).is_ok());
    for (edit, words) in edits {
        let mut message = valid();
        edit(&mut message);
        refused(batch::decode_head(message).map(|head| head.outputs), words);
    }
}

#[test]
fn errors_of_a_later_version_and_kinds_only_a_peer_makes_are_still_refusals() {
    use proto::error_detail::Kind;
    let decoded = |kind| error::decode(proto::ErrorDetail { kind, keys: Vec::new() });
    assert!(matches!(decoded(None), Error::Protocol(_)));
    assert_eq!(decoded(Some(Kind::Incompatible("v2".to_owned()))), Error::Protocol("v2".to_owned()));
    assert!(
        matches!(decoded(Some(Kind::Internal("x".to_owned()))), Error::Protocol(reason) if reason.ends_with(": x"))
    );
    let kept: BTreeSet<i64> = [3].into();
    let deadline = proto::Deadline { why: "full".to_owned(), keys: kept.into_iter().collect(), not_committed: false };
    assert_eq!(decoded(Some(Kind::Deadline(deadline))), Error::Deadline("full".to_owned()));
}
