//! Leaves back to nests.

use super::fields::fields_of;
use crate::errors::signature;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use reverie_core::spec::{Structure, StructureKey};
use std::sync::Arc;

/// The classes of named tuples and dataclasses that this process has seen, by module and name.
fn classes(py: Python<'_>) -> &Bound<'_, PyDict> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    CLASSES.get_or_init(py, || PyDict::new(py).unbind()).bind(py)
}

/// The structure of an instance of a class; the class is remembered.
pub(super) fn record(
    class: &Bound<'_, PyType>,
    dataclass: bool,
    fields: Vec<(String, Structure)>,
) -> PyResult<Structure> {
    let (module, name) = (class.module()?.to_string(), class.qualname()?.to_string());
    classes(class.py()).set_item((&module, &name), class)?;
    Ok(Structure::Record { dataclass, module, name, fields })
}

/// Puts leaves back into a structure; keeps the Python objects that this needs.
pub enum Builder {
    Leaf,
    Dict(Vec<(Py<PyAny>, Builder)>),
    List(Vec<Builder>),
    Tuple(Vec<Builder>),
    /// The class is called with the fields in order.
    Positional(Py<PyAny>, Vec<Builder>),
    /// The class is called with the fields by name; those outside `__init__` are set after.
    Dataclass(Py<PyAny>, Vec<(Py<PyString>, bool, Builder)>),
}

impl Builder {
    /// Prepares for a structure.
    /// A class that this process has not seen, or whose fields differ from the structure, is replaced by a generated
    /// named tuple.
    pub fn new(py: Python<'_>, structure: &Structure) -> PyResult<Self> {
        let all =
            |children: &[Structure]| children.iter().map(|child| Self::new(py, child)).collect::<PyResult<Vec<_>>>();
        Ok(match structure {
            Structure::Leaf => Builder::Leaf,
            Structure::List(children) => Builder::List(all(children)?),
            Structure::Tuple(children) => Builder::Tuple(all(children)?),
            Structure::Dict(entries) => {
                let mut built = Vec::with_capacity(entries.len());
                for (key, child) in entries {
                    let key = match key {
                        StructureKey::Int(key) => key.into_pyobject(py)?.into_any().unbind(),
                        StructureKey::Str(key) => PyString::intern(py, key).into_any().unbind(),
                    };
                    built.push((key, Self::new(py, child)?));
                }
                Builder::Dict(built)
            }
            Structure::Record { dataclass, module, name, fields } => {
                Self::record(py, *dataclass, module, name, fields)?
            }
        })
    }

    fn record(
        py: Python<'_>,
        dataclass: bool,
        module: &str,
        name: &str,
        fields: &[(String, Structure)],
    ) -> PyResult<Self> {
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let children: Vec<Builder> = fields.iter().map(|(_, child)| Self::new(py, child)).collect::<PyResult<_>>()?;
        if let Some(class) = classes(py).get_item((module, name))? {
            if dataclass {
                let known = fields_of(&class)?;
                if known.len() == names.len() && known.iter().zip(&names).all(|((a, ..), b)| a.bind(py) == *b) {
                    let part = |((name, given, init), child): (_, _)| (if init { given } else { name }, init, child);
                    return Ok(Builder::Dataclass(class.unbind(), known.into_iter().zip(children).map(part).collect()));
                }
            } else if class.getattr("_fields")?.extract::<Vec<String>>()? == names {
                return Ok(Builder::Positional(class.unbind(), children));
            }
        }
        let short = name.rsplit('.').next().unwrap_or(name);
        let class = PyModule::import(py, "collections")?.call_method1("namedtuple", (short, names))?;
        Ok(Builder::Positional(class.unbind(), children))
    }

    /// Builds the nest from as many leaves as the structure has.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut all =
            |children: &[Builder]| children.iter().map(|child| child.build(py, leaves)).collect::<PyResult<Vec<_>>>();
        match self {
            Builder::Leaf => leaves.next().ok_or_else(|| signature(py, "", "too few leaves", "one per column")),
            Builder::List(children) => Ok(PyList::new(py, all(children)?)?.into_any()),
            Builder::Tuple(children) => Ok(PyTuple::new(py, all(children)?)?.into_any()),
            Builder::Positional(class, children) => class.bind(py).call1(PyTuple::new(py, all(children)?)?),
            Builder::Dict(entries) => {
                let dict = PyDict::new(py);
                for (key, child) in entries {
                    dict.set_item(key.bind(py), child.build(py, leaves)?)?;
                }
                Ok(dict.into_any())
            }
            Builder::Dataclass(class, fields) => {
                let (keywords, mut later) = (PyDict::new(py), Vec::new());
                for (name, init, child) in fields {
                    let child = child.build(py, leaves)?;
                    match init {
                        true => keywords.set_item(name.bind(py), child)?,
                        false => later.push((name, child)),
                    }
                }
                let made = class.bind(py).call((), Some(&keywords))?;
                for (name, child) in later {
                    // A frozen dataclass sets its own fields this way, too.
                    let object = py.get_type::<PyAny>();
                    object.call_method1(intern!(py, "__setattr__"), (&made, name.bind(py), child))?;
                }
                Ok(made)
            }
        }
    }
}

/// A structure and its builder, remembered from one batch to the next.
#[derive(Default)]
pub struct Unflattener {
    last: Option<(Structure, Builder)>,
}

impl Unflattener {
    /// Puts leaves into a structure.
    pub fn unflatten<'py>(
        &mut self,
        py: Python<'py>,
        structure: &Structure,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.last.as_ref().is_some_and(|(known, _)| known == structure) {
            self.last = Some((structure.clone(), Builder::new(py, structure)?));
        }
        match &self.last {
            Some((_, builder)) => builder.build(py, leaves),
            None => Err(signature(py, "", "nothing", "a structure")),
        }
    }
}

/// A nest's form, for Python.
#[pyclass(frozen, eq, hash, module = "reverie._native", name = "Structure")]
#[derive(PartialEq, Eq, Hash)]
pub struct PyStructure(pub Arc<Structure>);

#[pymethods]
impl PyStructure {
    /// The path of every leaf, in flattening order.
    #[getter]
    fn paths(&self) -> Vec<String> {
        self.0.paths()
    }

    /// A nest of this form with the given leaves.
    fn unflatten<'py>(&self, leaves: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = leaves.py();
        let leaves: Vec<Bound<'py, PyAny>> = leaves.try_iter()?.collect::<PyResult<_>>()?;
        let want = self.0.num_leaves();
        if leaves.len() != want {
            return Err(signature(py, "", &format!("{} leaves", leaves.len()), &format!("{want} leaves")));
        }
        Builder::new(py, &self.0)?.build(py, &mut leaves.into_iter())
    }

    fn __repr__(&self) -> String {
        format!("Structure({})", self.0.paths().join(", "))
    }
}
