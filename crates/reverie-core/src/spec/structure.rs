//! The structure of a user's nest: a typed tree whose leaves are columns.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A dictionary key, of the kinds that NumPy-based nests use and that can be sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StructureKey {
    /// An integer key.
    Int(i64),
    /// A text key.
    Str(String),
}

impl fmt::Display for StructureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructureKey::Int(key) => key.fmt(f),
            StructureKey::Str(key) => f.write_str(key),
        }
    }
}

/// The shape of a user's nest, as a typed tree: never a pickle. Dictionaries are sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// One column.
    Leaf,
    /// A mapping, sorted by key.
    Dict(Vec<(StructureKey, Structure)>),
    /// A list.
    List(Vec<Structure>),
    /// A plain tuple.
    Tuple(Vec<Structure>),
    /// A named tuple or a dataclass, in field order.
    Record {
        /// True for a dataclass, false for a named tuple.
        dataclass: bool,
        /// The module of the class.
        module: String,
        /// The qualified name of the class.
        name: String,
        /// The fields.
        fields: Vec<(String, Structure)>,
    },
}

impl Structure {
    /// The approximate bytes of memory in addition to the value itself.
    pub fn size_bytes(&self) -> usize {
        let node = |own: usize, inner: &Self| size_of::<Self>() + own + inner.size_bytes();
        match self {
            Self::Leaf => 0,
            Self::Dict(entries) => {
                let text = |key: &StructureKey| if let StructureKey::Str(text) = key { text.len() } else { 0 };
                entries.iter().map(|(key, inner)| node(size_of::<StructureKey>() + text(key), inner)).sum()
            }
            Self::List(inner) | Self::Tuple(inner) => inner.iter().map(|inner| node(0, inner)).sum(),
            Self::Record { module, name, fields, .. } => {
                let name_bytes = |name: &str| size_of::<String>() + name.len();
                let fields = fields.iter().map(|(field, inner)| node(name_bytes(field), inner));
                module.len() + name.len() + fields.sum::<usize>()
            }
        }
    }

    /// Number of columns.
    pub fn num_leaves(&self) -> usize {
        match self {
            Structure::Leaf => 1,
            Structure::Dict(entries) => entries.iter().map(|(_, child)| child.num_leaves()).sum(),
            Structure::List(children) | Structure::Tuple(children) => children.iter().map(Structure::num_leaves).sum(),
            Structure::Record { fields, .. } => fields.iter().map(|(_, child)| child.num_leaves()).sum(),
        }
    }

    /// The structure with the columns of both: dictionaries are united, sequences are as long as the longer.
    ///
    /// `holds` returns whether a path was ever a column: a leaf that never was one (it was always `None`) is replaced
    /// by the structure below its path. `Err` is the path at which the two differ.
    pub fn merged(&self, other: &Structure, holds: &dyn Fn(&str) -> bool) -> Result<Structure, String> {
        merge(self, other, &mut String::new(), holds)
    }

    /// True if it contains a list or a tuple.
    pub fn has_lists(&self) -> bool {
        match self {
            Structure::Leaf => false,
            Structure::List(_) | Structure::Tuple(_) => true,
            Structure::Dict(entries) => entries.iter().any(|(_, child)| child.has_lists()),
            Structure::Record { fields, .. } => fields.iter().any(|(_, child)| child.has_lists()),
        }
    }

    /// A path that two columns share, as with the keys `a/b` and, below `a`, `b`: neither could be addressed.
    pub fn ambiguous_path(&self) -> Option<String> {
        let mut paths = self.paths();
        paths.sort_unstable();
        paths.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
    }

    /// The path of every column, in flattening order: names joined by `/`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::with_capacity(self.num_leaves());
        self.walk(&mut String::new(), &mut paths);
        paths
    }

    fn walk(&self, prefix: &mut String, paths: &mut Vec<String>) {
        let mut enter = |name: &dyn fmt::Display, child: &Structure, prefix: &mut String| {
            let length = prefix.len();
            if length > 0 {
                prefix.push('/');
            }
            prefix.push_str(&name.to_string());
            child.walk(prefix, paths);
            prefix.truncate(length);
        };
        match self {
            Structure::Leaf => paths.push(prefix.clone()),
            Structure::Dict(entries) => entries.iter().for_each(|(key, child)| enter(key, child, prefix)),
            Structure::List(children) | Structure::Tuple(children) => {
                children.iter().enumerate().for_each(|(index, child)| enter(&index, child, prefix));
            }
            Structure::Record { fields, .. } => fields.iter().for_each(|(name, child)| enter(name, child, prefix)),
        }
    }
}

fn merge(
    old: &Structure,
    new: &Structure,
    path: &mut String,
    holds: &dyn Fn(&str) -> bool,
) -> Result<Structure, String> {
    let mut child = |name: &dyn fmt::Display, old: Option<&Structure>, new: Option<&Structure>| {
        let (Some(old), Some(new)) = (old, new) else {
            return Ok(old.or(new).cloned().unwrap_or(Structure::Leaf));
        };
        let length = path.len();
        let separator = if length > 0 { "/" } else { "" };
        path.push_str(&format!("{separator}{name}"));
        let merged = merge(old, new, path, holds);
        path.truncate(length);
        merged
    };
    match (old, new) {
        (Structure::Leaf, Structure::Leaf) => Ok(Structure::Leaf),
        (Structure::Dict(old), Structure::Dict(new)) => {
            let under = |entries: &[(StructureKey, Structure)], key: &StructureKey| {
                entries.iter().find(|(other, _)| other == key).map(|(_, child)| child.clone())
            };
            let mut keys: Vec<&StructureKey> = old.iter().chain(new).map(|(key, _)| key).collect();
            keys.sort();
            keys.dedup();
            let entries = keys
                .into_iter()
                .map(|key| Ok((key.clone(), child(key, under(old, key).as_ref(), under(new, key).as_ref())?)));
            Ok(Structure::Dict(entries.collect::<Result<_, String>>()?))
        }
        (Structure::List(a), Structure::List(b)) | (Structure::Tuple(a), Structure::Tuple(b)) => {
            let children = (0..a.len().max(b.len())).map(|at| child(&at, a.get(at), b.get(at)));
            let children = children.collect::<Result<_, String>>()?;
            Ok(if matches!(old, Structure::List(_)) { Structure::List(children) } else { Structure::Tuple(children) })
        }
        (
            Structure::Record { dataclass, module, name, fields },
            Structure::Record { module: new_module, name: new_name, fields: new_fields, .. },
        ) if (module, name, fields.len()) == (new_module, new_name, new_fields.len()) => {
            let merged = fields
                .iter()
                .zip(new_fields)
                .map(|((field, old), (_, new))| Ok((field.clone(), child(field, Some(old), Some(new))?)));
            let fields = merged.collect::<Result<_, String>>()?;
            Ok(Structure::Record { dataclass: *dataclass, module: module.clone(), name: name.clone(), fields })
        }
        (Structure::Leaf, other) | (other, Structure::Leaf) if !holds(path) => Ok(other.clone()),
        _ => Err(path.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dict(entries: &[(&str, Structure)]) -> Structure {
        Structure::Dict(
            entries.iter().map(|(key, child)| (StructureKey::Str((*key).to_owned()), child.clone())).collect(),
        )
    }

    #[test]
    fn merging_unites_dictionaries_and_takes_the_longer_sequence() {
        let old = dict(&[("a", Structure::Leaf), ("b", Structure::Tuple(vec![Structure::Leaf]))]);
        let new = dict(&[("b", Structure::Tuple(vec![Structure::Leaf; 2])), ("c", Structure::Leaf)]);
        let merged = old.merged(&new, &|_| true).unwrap();
        assert_eq!(merged.paths(), ["a", "b/0", "b/1", "c"]);
        assert_eq!(new.merged(&old, &|_| true).unwrap(), merged);
    }

    #[test]
    fn merging_names_the_path_where_a_column_would_become_a_container() {
        let (old, new) = (dict(&[("a", Structure::Leaf)]), dict(&[("a", dict(&[("b", Structure::Leaf)]))]));
        assert_eq!(old.merged(&new, &|_| true), Err("a".to_owned()));
        // Unless it never held a value.
        assert_eq!(old.merged(&new, &|_| false).unwrap().paths(), ["a/b"]);
        assert_eq!(new.merged(&old, &|_| false).unwrap().paths(), ["a/b"]);
        let list = dict(&[("a", Structure::List(vec![Structure::Leaf]))]);
        assert_eq!(list.merged(&new, &|_| false), Err("a".to_owned()));
    }
}
