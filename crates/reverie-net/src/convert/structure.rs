//! Nests.

use super::broken;
use crate::proto::{self, field_key, node::Kind};
use reverie_core::Result;
use reverie_core::spec::{Key, Structure};
use std::collections::HashSet;

/// Levels of a nest at most.
pub const MAX_DEPTH: usize = 64;
/// Nodes of a nest at most.
const MAX_NODES: usize = 1 << 16;

/// Encodes a nest.
pub fn encode(structure: &Structure) -> proto::Structure {
    let mut nodes = Vec::new();
    push(structure, &mut nodes);
    proto::Structure { nodes }
}

fn push(structure: &Structure, nodes: &mut Vec<proto::Node>) {
    let kind = match structure {
        Structure::Leaf => None,
        Structure::Dict(entries) => {
            let key = |key: &Key| match key {
                Key::Int(number) => field_key::Key::Number(*number),
                Key::Str(text) => field_key::Key::Text(text.clone()),
            };
            let keys = entries.iter().map(|(name, _)| proto::FieldKey { key: Some(key(name)) });
            Some(Kind::Dict(proto::Dict { keys: keys.collect() }))
        }
        Structure::List(children) => Some(Kind::List(children.len() as u32)),
        Structure::Tuple(children) => Some(Kind::Tuple(children.len() as u32)),
        Structure::Record { dataclass, module, name, fields } => Some(Kind::Record(proto::Record {
            dataclass: *dataclass,
            module: module.clone(),
            name: name.clone(),
            names: fields.iter().map(|(field, _)| field.clone()).collect(),
        })),
    };
    nodes.push(proto::Node { kind });
    match structure {
        Structure::Leaf => {}
        Structure::Dict(entries) => entries.iter().for_each(|(_, child)| push(child, nodes)),
        Structure::List(children) | Structure::Tuple(children) => children.iter().for_each(|child| push(child, nodes)),
        Structure::Record { fields, .. } => fields.iter().for_each(|(_, child)| push(child, nodes)),
    }
}

/// Decodes a nest.
/// `Protocol`: more than [`MAX_DEPTH`] levels, too many nodes, missing or extra nodes, or duplicate names.
pub fn decode(message: proto::Structure) -> Result<Structure> {
    if message.nodes.len() > MAX_NODES {
        return Err(broken(format!("a structure of {} nodes, more than {MAX_NODES}", message.nodes.len())));
    }
    let mut nodes = message.nodes.into_iter();
    let structure = pull(&mut nodes, 0)?;
    match nodes.len() {
        0 => Ok(structure),
        left => Err(broken(format!("a structure with {left} nodes that belong to nothing"))),
    }
}

type Nodes = std::vec::IntoIter<proto::Node>;

fn pull(nodes: &mut Nodes, depth: usize) -> Result<Structure> {
    if depth > MAX_DEPTH {
        return Err(broken(format!("a structure of more than {MAX_DEPTH} levels")));
    }
    let node = nodes.next().ok_or_else(|| broken("a structure that ends before its last child"))?;
    Ok(match node.kind {
        None => Structure::Leaf,
        Some(Kind::Dict(dict)) => {
            let keys = dict.keys.into_iter().map(|key| match key.key {
                Some(field_key::Key::Number(number)) => Ok(Key::Int(number)),
                Some(field_key::Key::Text(text)) => Ok(Key::Str(text)),
                None => Err(broken("a dictionary with a key that is nothing")),
            });
            let keys = keys.collect::<Result<Vec<_>>>()?;
            all_different(keys.iter())?;
            let children = children(nodes, keys.len(), depth)?;
            Structure::Dict(keys.into_iter().zip(children).collect())
        }
        Some(Kind::List(count)) => Structure::List(children(nodes, count as usize, depth)?),
        Some(Kind::Tuple(count)) => Structure::Tuple(children(nodes, count as usize, depth)?),
        Some(Kind::Record(proto::Record { dataclass, module, name, names })) => {
            all_different(names.iter())?;
            let children = children(nodes, names.len(), depth)?;
            Structure::Record { dataclass, module, name, fields: names.into_iter().zip(children).collect() }
        }
    })
}

fn children(nodes: &mut Nodes, count: usize, depth: usize) -> Result<Vec<Structure>> {
    if count > nodes.len() {
        return Err(broken("a structure that ends before its last child"));
    }
    (0..count).map(|_| pull(nodes, depth + 1)).collect()
}

fn all_different<T: std::hash::Hash + Eq + std::fmt::Debug>(names: impl Iterator<Item = T>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(broken(format!("a structure with two fields {name:?}")));
        }
        seen.insert(name);
    }
    Ok(())
}
