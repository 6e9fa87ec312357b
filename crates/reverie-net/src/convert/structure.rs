//! Nests.

use super::broken;
use crate::proto::{self, field_key, node::Kind};
use reverie_core::Result;
use reverie_core::spec::nodes::Node;
use reverie_core::spec::{Structure, StructureKey};

/// Levels of a nest at most.
pub const MAX_DEPTH: usize = 64;
/// Nodes of a nest at most.
const MAX_NODES: usize = 1 << 16;

/// Encodes a nest.
pub fn encode(structure: &Structure) -> proto::Structure {
    proto::Structure { nodes: structure.nodes().into_iter().map(encode_node).collect() }
}

fn encode_node(node: Node) -> proto::Node {
    let key = |key| match key {
        StructureKey::Int(number) => proto::FieldKey { key: Some(field_key::Key::Number(number)) },
        StructureKey::Str(text) => proto::FieldKey { key: Some(field_key::Key::Text(text)) },
    };
    let kind = match node {
        Node::Leaf => None,
        Node::Dict(keys) => Some(Kind::Dict(proto::Dict { keys: keys.into_iter().map(key).collect() })),
        Node::List(count) => Some(Kind::List(count)),
        Node::Tuple(count) => Some(Kind::Tuple(count)),
        Node::Record { dataclass, module, name, names } => {
            Some(Kind::Record(Box::new(proto::Record { dataclass, module, name, names })))
        }
    };
    proto::Node { kind }
}

/// Decodes a nest.
/// `Protocol`: more than [`MAX_DEPTH`] levels, too many nodes, missing or extra nodes, or duplicate names.
pub fn decode(message: proto::Structure) -> Result<Structure> {
    if message.nodes.len() > MAX_NODES {
        return Err(broken(format!("a structure has {} nodes; {MAX_NODES} are allowed", message.nodes.len())));
    }
    let nodes = message.nodes.into_iter().map(decode_node).collect::<Result<_>>()?;
    Structure::from_nodes(nodes, MAX_DEPTH).map_err(broken)
}

fn decode_node(node: proto::Node) -> Result<Node> {
    let key = |key: proto::FieldKey| match key.key {
        Some(field_key::Key::Number(number)) => Ok(StructureKey::Int(number)),
        Some(field_key::Key::Text(text)) => Ok(StructureKey::Str(text)),
        None => Err(broken("a dictionary entry has no key")),
    };
    Ok(match node.kind {
        None => Node::Leaf,
        Some(Kind::Dict(dict)) => Node::Dict(dict.keys.into_iter().map(key).collect::<Result<_>>()?),
        Some(Kind::List(count)) => Node::List(count),
        Some(Kind::Tuple(count)) => Node::Tuple(count),
        Some(Kind::Record(record)) => {
            let proto::Record { dataclass, module, name, names } = *record;
            Node::Record { dataclass, module, name, names }
        }
    })
}
