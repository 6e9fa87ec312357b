//! The specification of columns: dtype, cell shape, path; and the structure that they came from.

mod difference;
pub mod nodes;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one array element.
///
/// `Bytes` and `Str` have no fixed width: each chunk defines the width of its elements (`Str` elements are UCS-4, as
/// NumPy's `U`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    BFloat16,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3B11Fnuz,
    Float8E4M3Fn,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Bytes,
    Str,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 25] = [
        DType::Bool,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::UInt8,
        DType::UInt16,
        DType::UInt32,
        DType::UInt64,
        DType::Float16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
        DType::BFloat16,
        DType::Float8E3M4,
        DType::Float8E4M3,
        DType::Float8E4M3B11Fnuz,
        DType::Float8E4M3Fn,
        DType::Float8E4M3Fnuz,
        DType::Float8E5M2,
        DType::Float8E5M2Fnuz,
        DType::Float8E8M0Fnu,
        DType::Bytes,
        DType::Str,
    ];

    /// Bytes of one element; `None` if each chunk has its own width.
    pub fn size(self) -> Option<usize> {
        use DType::*;
        Some(match self {
            Bool | Int8 | UInt8 | Float8E3M4 | Float8E4M3 | Float8E4M3B11Fnuz | Float8E4M3Fn | Float8E4M3Fnuz
            | Float8E5M2 | Float8E5M2Fnuz | Float8E8M0Fnu => 1,
            Int16 | UInt16 | Float16 | BFloat16 => 2,
            Int32 | UInt32 | Float32 => 4,
            Int64 | UInt64 | Float64 | Complex64 => 8,
            Complex128 => 16,
            Bytes | Str => return None,
        })
    }

    /// The dtype's name in NumPy or ml_dtypes.
    pub fn name(self) -> &'static str {
        use DType::*;
        match self {
            Bool => "bool",
            Int8 => "int8",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            UInt8 => "uint8",
            UInt16 => "uint16",
            UInt32 => "uint32",
            UInt64 => "uint64",
            Float16 => "float16",
            Float32 => "float32",
            Float64 => "float64",
            Complex64 => "complex64",
            Complex128 => "complex128",
            BFloat16 => "bfloat16",
            Float8E3M4 => "float8_e3m4",
            Float8E4M3 => "float8_e4m3",
            Float8E4M3B11Fnuz => "float8_e4m3b11fnuz",
            Float8E4M3Fn => "float8_e4m3fn",
            Float8E4M3Fnuz => "float8_e4m3fnuz",
            Float8E5M2 => "float8_e5m2",
            Float8E5M2Fnuz => "float8_e5m2fnuz",
            Float8E8M0Fnu => "float8_e8m0fnu",
            Bytes => "bytes",
            Str => "str",
        }
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl TryFrom<String> for DType {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::from_name(&name).ok_or_else(|| format!("the unknown dtype '{name}'"))
    }
}

impl From<DType> for &'static str {
    fn from(dtype: DType) -> Self {
        dtype.name()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One column of a writer or an item: its path in the user's structure, and the type and shape of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// The path in the user's structure, `obs/pixels`; empty if the structure is one array.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape of one cell (no time axis); the first size may be [`ANY_SIZE`].
    pub shape: Vec<usize>,
}

/// The first size of cells whose sizes differ: each chunk defines it by the width of its cells.
pub const ANY_SIZE: usize = usize::MAX;

impl ColumnSpec {
    /// True if the cells differ in the size of their first axis.
    pub fn is_variable(&self) -> bool {
        self.shape.first() == Some(&ANY_SIZE)
    }

    /// The same with cells of any first size; `None` for cells that have no such axis, or no bytes along it.
    pub fn variable(&self) -> Option<Self> {
        let mut spec = self.clone();
        *spec.shape.first_mut()? = ANY_SIZE;
        spec.row_bytes().filter(|bytes| *bytes > 0).map(|_| spec)
    }

    /// True if cells of the other column may differ from this one's in the size of their first axis, and in nothing
    /// else.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.path == other.path
            && self.dtype == other.dtype
            && self.shape.len() == other.shape.len()
            && self.shape.iter().zip(&other.shape).skip(1).all(|(ours, theirs)| ours == theirs)
    }

    /// Elements in one cell; 0 if the cells differ.
    pub fn elements(&self) -> usize {
        if self.is_variable() { 0 } else { self.shape.iter().product() }
    }

    /// Bytes of one cell; `None` if the cells differ, or the dtype has no fixed width.
    pub fn cell_bytes(&self) -> Option<usize> {
        self.dtype.size().filter(|_| !self.is_variable()).map(|size| size * self.elements())
    }

    /// Bytes at one index of a cell's first axis; `None` if the dtype has no fixed width.
    pub fn row_bytes(&self) -> Option<usize> {
        self.dtype.size().map(|size| size * self.shape.iter().skip(1).product::<usize>())
    }

    /// The first size of a cell of so many bytes; `None` if it has no whole number of rows.
    pub fn rows_in(&self, bytes: usize) -> Option<usize> {
        let row = self.row_bytes().filter(|row| *row > 0)?;
        bytes.is_multiple_of(row).then_some(bytes / row)
    }

    /// The shape as people read it, `[any, 3]` where the first size differs.
    pub fn shape_text(&self) -> String {
        let size = |size: &usize| if *size == ANY_SIZE { "any".to_owned() } else { size.to_string() };
        format!("[{}]", self.shape.iter().map(size).collect::<Vec<_>>().join(", "))
    }
}

/// A table's requirements for one column of its items: dimensions may be open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnSignature {
    /// The path in the signature's structure.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape, time axis included unless the column is squeezed; `None` accepts any size.
    pub shape: Vec<Option<usize>>,
}

/// A table's requirements for its items.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// The columns in flattening order.
    pub columns: Vec<ColumnSignature>,
    /// The structure that the columns fill.
    pub structure: Structure,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, column) in self.columns.iter().enumerate() {
            let sizes: Vec<String> =
                column.shape.iter().map(|size| size.map_or("any".into(), |n| n.to_string())).collect();
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}: {} [{}]", column.path, column.dtype, sizes.join(", "))?;
        }
        f.write_str("}")
    }
}

/// The columns that a writer gets at each step, or in a group of rows, in flattening order, and their structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// The columns.
    pub columns: Vec<ColumnSpec>,
    /// The structure that they fill.
    pub structure: Structure,
}

/// A dictionary key, of the kinds that NumPy-based nests use and that can be sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// An integer key.
    Int(i64),
    /// A text key.
    Str(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Int(key) => key.fmt(f),
            Key::Str(key) => f.write_str(key),
        }
    }
}

/// The shape of a user's nest, as a typed tree: never a pickle. Dictionaries are sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// One column.
    Leaf,
    /// A mapping, sorted by key.
    Dict(Vec<(Key, Structure)>),
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
    /// The approximate bytes of memory beside the value itself.
    pub fn size_bytes(&self) -> usize {
        let node = |own: usize, inner: &Self| size_of::<Self>() + own + inner.size_bytes();
        match self {
            Self::Leaf => 0,
            Self::Dict(entries) => {
                let text = |key: &Key| if let Key::Str(text) = key { text.len() } else { 0 };
                entries.iter().map(|(key, inner)| node(size_of::<Key>() + text(key), inner)).sum()
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
            let under = |entries: &[(Key, Structure)], key: &Key| {
                entries.iter().find(|(other, _)| other == key).map(|(_, child)| child.clone())
            };
            let mut keys: Vec<&Key> = old.iter().chain(new).map(|(key, _)| key).collect();
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
        Structure::Dict(entries.iter().map(|(key, child)| (Key::Str((*key).to_owned()), child.clone())).collect())
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
