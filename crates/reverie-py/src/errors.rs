//! The one map from the engine's errors to the exceptions of `reverie.errors`.

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::Error;

/// Makes `reverie.errors.<class>(message, **attributes)`.
pub fn exception<'py>(
    py: Python<'py>,
    class: &str,
    message: &str,
    attributes: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class = PyModule::import(py, "reverie.errors")?.getattr(class)?;
        let keywords = PyDict::new(py);
        attributes(&keywords)?;
        Ok(PyErr::from_value(class.call((message,), Some(&keywords))?))
    };
    made().unwrap_or_else(|error| error)
}

/// The exception for an error of the engine.
#[cold]
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    raise_with(py, error, &text)
}

/// Like [`raise`], with this text.
#[cold]
fn raise_with(py: Python<'_>, error: Error, text: &str) -> PyErr {
    match error {
        Error::InvalidArgument(_) => PyValueError::new_err(text.to_owned()),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(text.to_owned()),
        Error::UnknownTable { name, known } => exception(py, "UnknownTableError", text, |with| {
            with.set_item("name", name)?;
            with.set_item("known", known)
        }),
        Error::Signature { path, got, want } => signature_with(py, text, &path, &got, &want),
        Error::Ragged { path, reason } => exception(py, "RaggedError", text, |with| {
            with.set_item("path", path)?;
            with.set_item("reason", reason)
        }),
        Error::ResourceExhausted { what, needed, budget, hint } => {
            exception(py, "ResourceExhaustedError", text, |with| {
                with.set_item("what", what)?;
                with.set_item("needed", needed)?;
                with.set_item("budget", budget)?;
                with.set_item("hint", hint)
            })
        }
        Error::Closed { name } | Error::ClientClosed { address: name } => {
            exception(py, "ClosedError", text, |with| with.set_item("name", name))
        }
        Error::UnknownKey { table, key } => exception(py, "UnknownKeyError", text, |with| {
            with.set_item("table", table)?;
            with.set_item("key", key.get())
        }),
        Error::DamagedFile { path, what, offset } => exception(py, "DamagedError", text, |with| {
            with.set_item("path", path)?;
            with.set_item("what", what)?;
            with.set_item("offset", offset)
        }),
        Error::Storage { path, action, reason } => exception(py, "StorageError", text, |with| {
            with.set_item("path", path)?;
            with.set_item("action", action)?;
            with.set_item("reason", reason)
        }),
        Error::Unavailable(_) | Error::Undecided(_) => exception(py, "UnavailableError", text, |_| Ok(())),
        Error::Unauthenticated(_) => exception(py, "UnauthenticatedError", text, |_| Ok(())),
        Error::Protocol(_) => exception(py, "ProtocolError", text, |_| Ok(())),
        Error::UnknownOutcome { number } => {
            exception(py, "UnknownOutcomeError", text, |with| with.set_item("number", number))
        }
        Error::NotCommitted { keys, why } => exception(py, "DeadlineExceededError", text, |with| {
            with.set_item("why", why)?;
            if keys.is_empty() {
                return Ok(()); // of another request than an insert
            }
            let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
            with.set_item("partial", PyModule::import(py, "numpy")?.call_method1("array", (keys, "int64"))?)
        }),
        Error::Deadline(why) => exception(py, "DeadlineExceededError", text, |with| with.set_item("why", why)),
        Error::PartlyInserted { keys, error } => {
            // The text also has the number of items that stay.
            let raised = raise_with(py, *error, text);
            let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
            let set = PyModule::import(py, "numpy")
                .and_then(|numpy| numpy.call_method1("array", (keys, "int64")))
                .and_then(|partial| raised.value(py).setattr("partial", partial));
            set.err().unwrap_or(raised)
        }
        Error::Damaged(_) => exception(py, "DamagedError", text, |_| Ok(())),
        _ => exception(py, "ReplayError", text, |_| Ok(())),
    }
}

/// The engine's error behind an exception that a connection may have caused: unavailable, closed, or late.
#[cold]
pub fn of_connection(py: Python<'_>, error: &PyErr) -> PyResult<Option<Error>> {
    let classes = PyModule::import(py, "reverie.errors")?;
    let is = |class: &str| Ok::<_, PyErr>(error.is_instance(py, &classes.getattr(class)?));
    let text = error.value(py).to_string();
    Ok(if is("UnavailableError")? {
        Some(Error::Unavailable(text))
    } else if is("ClosedError")? {
        Some(Error::Closed { name: text })
    } else if is("DeadlineExceededError")? {
        Some(Error::Deadline(text))
    } else {
        None
    })
}

/// The exception for a leaf or a nest that does not fit.
#[cold]
pub fn signature(py: Python<'_>, path: &str, got: &str, want: &str) -> PyErr {
    let error = Error::Signature { path: path.to_owned(), got: got.to_owned(), want: want.to_owned() };
    signature_with(py, &error.to_string(), path, got, want)
}

fn signature_with(py: Python<'_>, text: &str, path: &str, got: &str, want: &str) -> PyErr {
    exception(py, "SignatureError", text, |with| {
        with.set_item("path", path)?;
        with.set_item("got", got)?;
        with.set_item("want", want)
    })
}

/// The exception for an in-process handle used in a forked child.
#[cold]
pub fn forked(py: Python<'_>, what: &str) -> PyErr {
    let text = format!(
        "this {what} lives in the parent process and cannot be used in a forked child; start workers with \
         multiprocessing.get_context(\"spawn\")"
    );
    exception(py, "ForkedError", &text, |_| Ok(()))
}

/// The exception for a panic: a defect of the engine, never the caller's.
#[cold]
pub fn defect(py: Python<'_>, payload: &(dyn std::any::Any + Send)) -> PyErr {
    let what = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let text = format!("a defect in reverie's engine, please report it: {what}");
    exception(py, "InternalError", &text, |_| Ok(()))
}
