//! Nests: structures of leaves, flattened as in dm-tree (dicts by sorted key), and dataclasses by field order.
//!
//! The structure of the last nest is kept, so that the next one of the same form is flattened by comparing pointers.

mod build;
mod fields;

pub use build::{Builder, PyStructure, Unflattener};

use crate::array::{KnownEntry, is_array, take_known};
use crate::errors::signature;
use build::record;
use fields::fields_of;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple, PyType};
use reverie_core::spec::{Structure, StructureKey};
use smallvec::SmallVec;
use std::sync::Arc;

/// Deeper nests are refused: a list that contains itself has no end.
const MAX_DEPTH: usize = 64;

/// The leaves of one nest, in flattening order.
pub struct Leaves<'py>(Slots<'py>);

/// Filled while the nest is walked; `None` only until then.
type Slots<'py> = SmallVec<[Option<Bound<'py, PyAny>>; 8]>;

impl<'py> Leaves<'py> {
    /// The number of leaves.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The leaves, each to be taken.
    #[inline]
    pub fn slots(&mut self) -> impl Iterator<Item = &mut Option<Bound<'py, PyAny>>> {
        self.0.iter_mut()
    }

    /// The leaves.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Bound<'py, PyAny>> {
        self.0.iter().flatten()
    }
}

/// The form of a nest, with the Python objects for recognising it quickly.
pub struct Nest {
    root: Node,
    num_leaves: usize,
    /// The form for the engine.
    pub structure: Arc<Structure>,
}

enum Node {
    Leaf {
        index: usize,
        class: Py<PyType>,
    },
    /// In the order of insertion that was last seen.
    Dict {
        entries: Vec<(Py<PyAny>, Node)>,
        /// The entries of a dict of leaves; otherwise empty.
        known: Vec<KnownEntry>,
    },
    Sequence {
        class: Py<PyType>,
        children: Vec<Node>,
    },
    Dataclass {
        class: Py<PyType>,
        fields: Vec<(Py<PyString>, Node)>,
    },
}

/// Flattens one nest after another.
#[derive(Default)]
pub struct Flattener {
    last: Option<Nest>,
}

impl Flattener {
    /// The leaves of a dict of leaves with the form of the last nest. Runs no Python code. `None`: flatten it.
    #[inline]
    pub fn known<'py>(&self, value: &Bound<'py, PyAny>) -> Option<(Leaves<'py>, &Arc<Structure>)> {
        let Some(Nest { root: Node::Dict { known, .. }, structure, .. }) = &self.last else { return None };
        let dict = value.cast::<PyDict>().ok().filter(|_| !known.is_empty())?;
        let mut slots = Slots::new();
        slots.resize_with(known.len(), || None);
        take_known(dict, known, &mut slots).then_some((Leaves(slots), structure))
    }

    /// The leaves of a nest and its form.
    #[inline]
    pub fn flatten<'py>(&mut self, value: &Bound<'py, PyAny>) -> PyResult<(Leaves<'py>, &Nest)> {
        let known = self.last.as_ref().and_then(|nest| nest.fill(value));
        let leaves = match known {
            Some(leaves) => leaves,
            None => {
                let nest = Nest::of(value)?;
                let leaves = nest.leaves(value)?;
                self.last = Some(nest);
                leaves
            }
        };
        match &self.last {
            Some(nest) => Ok((leaves, nest)),
            None => Err(signature(value.py(), "", "nothing", "a nest")),
        }
    }
}

impl Nest {
    /// Learns the form of a nest.
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut num_leaves = 0;
        let (root, structure) = learn(value, &mut num_leaves, &mut Vec::new())?;
        refuse_ambiguous(value.py(), &structure)?;
        let mut nest = Self { root, num_leaves: 0, structure: Arc::new(structure) };
        nest.root.number(&mut nest.num_leaves);
        Ok(nest)
    }

    /// The leaves of a nest of this form.
    pub fn leaves<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Leaves<'py>> {
        self.fill(value)
            .ok_or_else(|| signature(value.py(), "", "a nest of another form", &self.structure.paths().join(", ")))
    }

    /// The path of a leaf.
    pub fn path(&self, index: usize) -> String {
        self.structure.paths().swap_remove(index)
    }

    /// The leaves of a nest of this form; `None` if it has another.
    #[inline]
    fn fill<'py>(&self, value: &Bound<'py, PyAny>) -> Option<Leaves<'py>> {
        let mut slots = Slots::with_capacity(self.num_leaves);
        slots.extend((0..self.num_leaves).map(|_| None));
        self.root.fill(value, &mut slots)?;
        Some(Leaves(slots))
    }
}

impl Node {
    fn fill<'py>(&self, value: &Bound<'py, PyAny>, slots: &mut [Option<Bound<'py, PyAny>>]) -> Option<()> {
        match self {
            Node::Leaf { index, class } => {
                if value.get_type_ptr() != class.as_ptr().cast() && !is_leaf(value).ok()? {
                    return None;
                }
                slots[*index] = Some(value.clone());
                Some(())
            }
            Node::Dict { entries, known } => {
                let dict = &as_dict(value)?;
                if !known.is_empty() && take_known(dict, known, slots) {
                    return Some(());
                }
                if dict.len() != entries.len() {
                    return None;
                }
                for ((known, node), (key, child)) in entries.iter().zip(dict.iter()) {
                    // Another order of insertion: learn the form again.
                    if known.as_ptr() != key.as_ptr() && !known.bind(key.py()).eq(&key).ok()? {
                        return None;
                    }
                    node.fill(&child, slots)?;
                }
                Some(())
            }
            Node::Sequence { class, children } => {
                if value.get_type_ptr() != class.as_ptr().cast() {
                    return None;
                }
                if let Ok(list) = value.cast::<PyList>() {
                    if list.len() != children.len() {
                        return None;
                    }
                    return children.iter().zip(list.iter()).try_for_each(|(node, child)| node.fill(&child, slots));
                }
                let tuple = value.cast::<PyTuple>().ok()?;
                if tuple.len() != children.len() {
                    return None;
                }
                children.iter().zip(tuple.iter()).try_for_each(|(node, child)| node.fill(&child, slots))
            }
            Node::Dataclass { class, fields } => {
                if value.get_type_ptr() != class.as_ptr().cast() {
                    return None;
                }
                let py = value.py();
                fields.iter().try_for_each(|(name, node)| node.fill(&value.getattr(name.bind(py)).ok()?, slots))
            }
        }
    }

    /// Numbers the leaves in flattening order: dict entries by key, in any order of insertion.
    fn number(&mut self, next: &mut usize) {
        match self {
            Node::Leaf { index, .. } => {
                *index = *next;
                *next += 1;
            }
            Node::Dict { entries, known } => {
                let mut order: Vec<usize> = (0..entries.len()).collect();
                let keys: Vec<Option<StructureKey>> =
                    Python::attach(|py| entries.iter().map(|(key, _)| key_of(key.bind(py))).collect());
                order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
                for at in order {
                    entries[at].1.number(next);
                }
                let leaf = |(key, node): &(Py<PyAny>, Node)| match node {
                    Node::Leaf { index, class } => Python::attach(|py| {
                        Some(KnownEntry { key: key.clone_ref(py), class: class.clone_ref(py), index: *index })
                    }),
                    _ => None,
                };
                *known = entries.iter().map(leaf).collect::<Option<_>>().unwrap_or_default();
            }
            Node::Sequence { children, .. } => children.iter_mut().for_each(|child| child.number(next)),
            Node::Dataclass { fields, .. } => fields.iter_mut().for_each(|(_, child)| child.number(next)),
        }
    }
}

/// True for a value that is not a container. `None` is a leaf.
fn is_leaf(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_array(value) || value.is_none() || value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
        return Ok(true);
    }
    if value.is_instance_of::<PyDict>() || value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Ok(false);
    }
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Ok(true);
    }
    Ok(!is_dataclass(value)? && !is_mapping(value)?)
}

/// A dict or another mapping, as a dict; `None` for every other value.
fn as_dict<'py>(value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return Some(dict.clone());
    }
    let mapping = value.cast::<PyMapping>().ok()?;
    let dict = PyDict::new(value.py());
    dict.update(mapping).ok()?;
    Some(dict)
}

/// True for instances of dataclasses and of attrs classes.
fn is_dataclass(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (class, py) = (value.get_type(), value.py());
    Ok(class.hasattr(intern!(py, "__dataclass_fields__"))? || class.hasattr(intern!(py, "__attrs_attrs__"))?)
}

fn is_mapping(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static MAPPING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let mapping = MAPPING
        .get_or_try_init(py, || PyModule::import(py, "collections.abc")?.getattr("Mapping").map(Bound::unbind))?;
    value.is_instance(mapping.bind(py))
}

fn key_of(key: &Bound<'_, PyAny>) -> Option<StructureKey> {
    if let Ok(text) = key.cast::<PyString>() {
        return Some(StructureKey::Str(text.to_string()));
    }
    key.extract::<i64>().ok().map(StructureKey::Int)
}

fn learn(value: &Bound<'_, PyAny>, leaves: &mut usize, path: &mut Vec<String>) -> PyResult<(Node, Structure)> {
    let py = value.py();
    let refused = |path: &[String], got: &str, want: &str| signature(py, &path.join("/"), got, want);
    if path.len() > MAX_DEPTH {
        return Err(refused(&path[..4], "a nest deeper than 64", "a nest without cycles"));
    }
    if is_leaf(value)? {
        *leaves += 1;
        return Ok((Node::Leaf { index: 0, class: value.get_type().unbind() }, Structure::Leaf));
    }
    let mut descend = |name: String, child: &Bound<'_, PyAny>| {
        path.push(name);
        let learnt = learn(child, leaves, path);
        path.pop();
        learnt
    };
    let class = value.get_type();
    if is_mapping(value)? {
        let Some(dict) = as_dict(value) else {
            return Err(refused(path, &format!("a {}", class.name()?), "a mapping that gives its keys and values"));
        };
        let mut entries = Vec::with_capacity(dict.len());
        let mut sorted = Vec::with_capacity(dict.len());
        for (key, child) in dict.iter() {
            let Some(known) = key_of(&key) else {
                return Err(refused(path, &format!("the key {}", key.repr()?), "keys that are all str or all int"));
            };
            let (node, structure) = descend(known.to_string(), &child)?;
            entries.push((key.unbind(), node));
            sorted.push((known, structure));
        }
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let (Some((StructureKey::Int(_), _)), Some((StructureKey::Str(_), _))) = (sorted.first(), sorted.last()) {
            return Err(refused(path, "keys of type int and str, which have no order", "keys of one type"));
        }
        return Ok((Node::Dict { entries, known: Vec::new() }, Structure::Dict(sorted)));
    }
    if is_dataclass(value)? {
        return learn_dataclass(value, &mut descend);
    }
    let (mut children, mut structures) = (Vec::new(), Vec::new());
    let names: Option<Vec<String>> = match value.is_instance_of::<PyTuple>() {
        true => class.getattr(intern!(py, "_fields")).ok().map(|fields| fields.extract()).transpose()?,
        false => None,
    };
    for (index, child) in value.try_iter()?.enumerate() {
        let name = names.as_ref().map_or_else(|| index.to_string(), |names| names[index].clone());
        let (node, structure) = descend(name, &child?)?;
        children.push(node);
        structures.push(structure);
    }
    let structure = match names {
        Some(names) => record(&class, false, names.into_iter().zip(structures).collect())?,
        None if value.is_instance_of::<PyTuple>() => Structure::Tuple(structures),
        None => Structure::List(structures),
    };
    Ok((Node::Sequence { class: class.unbind(), children }, structure))
}

type Descend<'a> = dyn FnMut(String, &Bound<'_, PyAny>) -> PyResult<(Node, Structure)> + 'a;

fn learn_dataclass(value: &Bound<'_, PyAny>, descend: &mut Descend<'_>) -> PyResult<(Node, Structure)> {
    let py = value.py();
    let class = value.get_type();
    let (mut nodes, mut structures) = (Vec::new(), Vec::new());
    for (name, ..) in fields_of(class.as_any())? {
        let text = name.bind(py).to_string();
        let (node, structure) = descend(text.clone(), &value.getattr(name.bind(py))?)?;
        structures.push((text, structure));
        nodes.push((name, node));
    }
    let structure = record(&class, true, structures)?;
    Ok((Node::Dataclass { class: class.unbind(), fields: nodes }, structure))
}

/// Refuses a form in which two leaves have the same path.
pub fn refuse_ambiguous(py: Python<'_>, structure: &Structure) -> PyResult<()> {
    match structure.ambiguous_path() {
        Some(path) => Err(signature(py, &path, "two columns of this path", "keys whose paths differ; rename one")),
        None => Ok(()),
    }
}

/// The leaves of a nest in flattening order, and its form.
#[pyfunction]
pub fn flatten<'py>(nest: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyList>, PyStructure)> {
    let mut flattener = Flattener::default();
    let (leaves, form) = flattener.flatten(nest)?;
    let leaves: Vec<_> = leaves.iter().collect();
    Ok((PyList::new(nest.py(), leaves)?, PyStructure(form.structure.clone())))
}
