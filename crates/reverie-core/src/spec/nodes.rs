//! Structures as flat lists, as files and messages have them: every node before its children.
//!
//! In a list, a deep structure is read without deep calls, and its depth is checked before calls become as deep.

use super::{Structure, StructureKey};
use crate::error::CountedNoun;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::hash::Hash;

/// A node of a [`Structure`]; its children follow it in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// See [`Structure::Leaf`].
    Leaf,
    /// One child for each key.
    Dict(Vec<StructureKey>),
    /// This many children.
    List(u32),
    /// This many children.
    Tuple(u32),
    /// One child for each name; see [`Structure::Record`].
    #[allow(missing_docs)]
    Record { dataclass: bool, module: String, name: String, names: Vec<String> },
}

impl Structure {
    /// The most levels of a structure in a file.
    const DEEPEST: usize = 256;

    /// The nodes, each before its children.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes = Vec::new();
        self.push(&mut nodes);
        nodes
    }

    fn push(&self, nodes: &mut Vec<Node>) {
        nodes.push(match self {
            Self::Leaf => Node::Leaf,
            Self::Dict(entries) => Node::Dict(entries.iter().map(|(key, _)| key.clone()).collect()),
            Self::List(children) => Node::List(children.len() as u32),
            Self::Tuple(children) => Node::Tuple(children.len() as u32),
            Self::Record { dataclass, module, name, fields } => Node::Record {
                dataclass: *dataclass,
                module: module.clone(),
                name: name.clone(),
                names: fields.iter().map(|(name, _)| name.clone()).collect(),
            },
        });
        match self {
            Self::Leaf => {}
            Self::Dict(entries) => entries.iter().for_each(|(_, child)| child.push(nodes)),
            Self::List(children) | Self::Tuple(children) => children.iter().for_each(|child| child.push(nodes)),
            Self::Record { fields, .. } => fields.iter().for_each(|(_, child)| child.push(nodes)),
        }
    }

    /// The structure of these nodes.
    ///
    /// Refuses more than `deepest` levels, missing or extra nodes, and duplicate names.
    pub fn from_nodes(nodes: Vec<Node>, deepest: usize) -> Result<Self, String> {
        let mut nodes = nodes.into_iter();
        let structure = pull(&mut nodes, deepest)?;
        match nodes.len() {
            0 => Ok(structure),
            left => Err(format!("the structure has {} without a parent", CountedNoun(left as u64, "node"))),
        }
    }
}

type Nodes = std::vec::IntoIter<Node>;

/// The next structure, of at most `levels` levels below it.
fn pull(nodes: &mut Nodes, levels: usize) -> Result<Structure, String> {
    Ok(match nodes.next().ok_or(TOO_SHORT)? {
        Node::Leaf => Structure::Leaf,
        Node::Dict(keys) => Structure::Dict(named(nodes, keys, levels)?),
        Node::List(count) => Structure::List(children(nodes, count as usize, levels)?),
        Node::Tuple(count) => Structure::Tuple(children(nodes, count as usize, levels)?),
        Node::Record { dataclass, module, name, names } => {
            Structure::Record { dataclass, module, name, fields: named(nodes, names, levels)? }
        }
    })
}

const TOO_SHORT: &str = "the structure ends before its last child";

fn children(nodes: &mut Nodes, count: usize, levels: usize) -> Result<Vec<Structure>, String> {
    if count > nodes.len() {
        return Err(TOO_SHORT.to_owned());
    }
    let below = || levels.checked_sub(1).ok_or("the structure is nested too deeply");
    (0..count).map(|_| pull(nodes, below()?)).collect()
}

fn named<N: Eq + Hash + std::fmt::Debug>(
    nodes: &mut Nodes,
    names: Vec<N>,
    levels: usize,
) -> Result<Vec<(N, Structure)>, String> {
    let mut seen = HashSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("the structure has two fields {twice:?}"));
    }
    let children = children(nodes, names.len(), levels)?;
    Ok(names.into_iter().zip(children).collect())
}

impl Serialize for Structure {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.nodes().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Structure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_nodes(Vec::deserialize(from)?, Self::DEEPEST).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Vec<Node> {
        (0..levels).map(|_| Node::List(1)).chain([Node::Leaf]).collect()
    }

    #[test]
    fn a_structure_nested_beyond_reason_is_refused_before_it_fills_the_stack() {
        let read = |levels| {
            let bytes = rmp_serde::to_vec(&nested(levels)).unwrap();
            rmp_serde::from_slice::<Structure>(&bytes).map_err(|error| error.to_string())
        };
        assert!(read(1_000_000).unwrap_err().contains("nested"));
        assert!(read(Structure::DEEPEST + 1).is_err());
        assert_eq!(read(Structure::DEEPEST).unwrap().num_leaves(), 1);
    }

    #[test]
    fn a_structure_of_other_nodes_than_it_announces_is_refused() {
        let twice = vec![Node::Dict(vec![StructureKey::Int(1), StructureKey::Int(1)]), Node::Leaf, Node::Leaf];
        for nodes in [vec![], vec![Node::Leaf; 2], vec![Node::Tuple(2), Node::Leaf], vec![Node::List(u32::MAX)], twice]
        {
            assert!(Structure::from_nodes(nodes.clone(), 9).is_err(), "{nodes:?}");
        }
    }
}
