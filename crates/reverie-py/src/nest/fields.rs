//! The fields of classes whose instances are nests.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A field of a class: its name, its argument's name in `__init__`, and whether `__init__` takes it.
pub(super) type ClassField = (Py<PyString>, Py<PyString>, bool);

/// The fields of a dataclass or an attrs class, in order.
pub(super) fn fields_of(class: &Bound<'_, PyAny>) -> PyResult<Vec<ClassField>> {
    let py = class.py();
    let is_attrs = class.hasattr(intern!(py, "__attrs_attrs__"))?;
    let fields = match is_attrs {
        true => class.getattr(intern!(py, "__attrs_attrs__"))?,
        false => PyModule::import(py, "dataclasses")?.call_method1("fields", (class,))?,
    };
    let field = |field: PyResult<Bound<'_, PyAny>>| {
        let field = field?;
        let name = field.getattr(intern!(py, "name"))?.cast_into::<PyString>()?;
        // attrs' `__init__` takes `_x` as `x`.
        let given = match (is_attrs, field.getattr_opt(intern!(py, "alias"))?) {
            (true, Some(alias)) => alias.cast_into::<PyString>()?,
            _ => name.clone(),
        };
        Ok((name.unbind(), given.unbind(), field.getattr(intern!(py, "init"))?.extract()?))
    };
    fields.try_iter()?.map(field).collect()
}
