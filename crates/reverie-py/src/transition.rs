//! n-step transitions from vector environments.

use crate::array::{Numbers, flags, numbers};
use crate::client::Client;
use crate::count::Count;
use crate::enter::{locked, quick};
use crate::intake::{CallColumns, Intake, Reader, check_same, opened};
use crate::rows::priority as read_priority;
use crate::sending::ItemSender;
use crate::trajectory::{busy, closed};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverie_core::append::{RightEnds, Sink, TransitionOptions, TransitionStep, TransitionWriter as Core};
use reverie_core::spec::Schema;
use reverie_core::table::Inserts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The engine's side of `reverie.writers.TransitionWriter`, which documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "TransitionWriter")]
pub struct TransitionWriter {
    sending: ItemSender,
    table: String,
    options: TransitionOptions,
    one_env: bool,
    /// Paths and numbers of axes of the cells that may differ in their first size.
    variable: Vec<(String, usize)>,
    /// Used under the GIL only; a second thread is refused.
    readers: Mutex<Readers>,
    writer: Mutex<Option<Core>>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Readers {
    obs: Reader,
    action: Reader,
    extras: Reader,
    final_obs: Reader,
    first: Option<FirstSchemas>,
}

/// True for an array `[N]` of Python objects.
fn are_objects(nest: &Bound<'_, PyAny>) -> bool {
    nest.cast::<PyUntypedArray>().is_ok_and(|array| array.ndim() == 1 && array.dtype().kind() == b'O')
}

/// The rows `[N, ...]` of `info["final_obs"]` of Gymnasium's vectors: an array of objects, None where no episode ended.
#[cold]
fn last_rows<'py>(
    obs: &Bound<'py, PyAny>,
    found: &Bound<'py, PyAny>,
    terminated: &Bound<'py, PyAny>,
    truncated: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static LAST_ROWS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_python = LAST_ROWS.import(obs.py(), "reverie.writers.last_rows", "last_rows")?;
    of_python.call1((obs, found, terminated, truncated))
}

/// The schemas of the first append, which later ones must have.
struct FirstSchemas {
    obs: Arc<Schema>,
    action: Arc<Schema>,
    extras: Option<Arc<Schema>>,
}

#[pymethods]
impl TransitionWriter {
    #[new]
    #[pyo3(signature = (client, table, *, n_step, discount, num_envs, frame_stack, stack_axis, autoreset, priority_eps,
        priority_clip, priority, max_in_flight_bytes, timeout, variable=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        table: &str,
        n_step: Count,
        discount: f64,
        num_envs: Option<Count>,
        frame_stack: Option<Count>,
        stack_axis: Count,
        autoreset: &str,
        priority_eps: f64,
        priority_clip: Option<f64>,
        priority: &Bound<'_, PyAny>,
        max_in_flight_bytes: Option<Count>,
        timeout: Option<f64>,
        variable: Vec<(String, usize)>,
    ) -> PyResult<Self> {
        let right_ends = match autoreset {
            "next_step" => RightEnds::NextAppend,
            "same_step" | "disabled" => RightEnds::Given,
            other => {
                return Err(PyValueError::new_err(format!(
                    "autoreset must be \"next_step\", \"same_step\" or \"disabled\", got {other:?}"
                )));
            }
        };
        let sending = ItemSender::new(client.bind(py), max_in_flight_bytes, timeout)?;
        let sink = sending.replay(py)?;
        let options = TransitionOptions {
            num_envs: num_envs.map_or(Ok(1), |count| count.at_least("num_envs", 1))?,
            n_step: n_step.at_least("n_step", 1)?,
            discount,
            frame_stack: frame_stack.map(|count| count.at_least("frame_stack", 1)).transpose()?,
            stack_axis: stack_axis.within("stack_axis", 0, usize::from(u8::MAX))? as u8,
            right_ends,
            priority_eps,
            priority_clip: priority_clip.unwrap_or(f64::INFINITY),
            priority_unit: 1.0,
            priority: read_priority(priority)?,
            compression: quick(py, || sink.compression(table))?,
        };
        quick(py, || options.validate().and_then(|()| sink.check_priority(table, options.priority)))?;
        Ok(Self {
            sending,
            table: table.to_owned(),
            options,
            one_env: num_envs.is_none(),
            variable,
            readers: Mutex::default(),
            writer: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    #[doc = stub!("TransitionWriter.append")]
    #[pyo3(signature = (obs, action, reward, terminated, truncated, *, final_obs=None, q_taken=None,
        bootstrap_value=None, final_value=None, extras=None, priority_unit=1.0))]
    #[allow(clippy::too_many_arguments)]
    fn append<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyAny>,
        action: &Bound<'py, PyAny>,
        reward: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        final_obs: Option<&Bound<'py, PyAny>>,
        q_taken: Option<&Bound<'py, PyAny>>,
        bootstrap_value: Option<&Bound<'py, PyAny>>,
        final_value: Option<&Bound<'py, PyAny>>,
        extras: Option<&Bound<'py, PyAny>>,
        priority_unit: f64,
    ) -> PyResult<usize> {
        let sink = self.sending.replay(py)?;
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed(py));
        }
        let mut readers = self.readers.try_lock().map_err(|_| busy())?;
        let Readers { obs: obs_reader, action: action_reader, extras: extras_reader, final_obs: final_reader, first } =
            &mut *readers;
        let rows = (!self.one_env).then_some(Some(self.options.num_envs));
        let obs_given = obs;
        let obs = obs_reader.read("obs", obs, rows, None)?;
        let action = action_reader.read("action", action, rows, None)?;
        let extras = extras.map(|extras| extras_reader.read("", extras, rows, None)).transpose()?;
        let of_ended = final_obs.filter(|nest| !self.one_env && are_objects(nest));
        let of_ended = of_ended.map(|found| last_rows(obs_given, found, terminated, truncated)).transpose()?;
        let final_obs = of_ended.as_ref().or(final_obs);
        let final_obs = final_obs.map(|nest| final_reader.read("final_obs", nest, rows, None)).transpose()?;
        let extras_schema = extras.as_ref().map(|extras| Arc::clone(&extras.schema));
        match first {
            Some(first) => first.check(py, &obs, &action, extras_schema.as_ref())?,
            None => {
                let sink = Arc::clone(sink) as Arc<dyn Sink>;
                let open = |prefix, schema: &Arc<Schema>| opened(schema, prefix, &self.variable);
                let (obs, action) = (open("obs", &obs.schema), open("action", &action.schema));
                let extras = extras_schema.as_ref().map(|schema| open("", schema));
                let core = Core::new(&sink, self.options.clone(), &obs, &action, extras.as_deref());
                *self.writer.lock().map_err(|_| busy())? = Some(quick(py, || core)?);
                *first = Some(FirstSchemas { obs, action, extras });
            }
        }
        if let (Some(first), Some(last)) = (&first, &final_obs) {
            check_same(py, "final_obs", &first.obs, &last.schema)?;
        }
        let floats = |value: Option<&Bound<'py, PyAny>>, name| value.map(|v| numbers::<f64>(v, name)).transpose();
        let reward = numbers::<f64>(reward, "reward")?;
        let (terminated, truncated) = (flags(terminated, "terminated")?, flags(truncated, "truncated")?);
        let q_taken = floats(q_taken, "q_taken")?;
        let bootstrap = floats(bootstrap_value, "bootstrap_value")?;
        let final_value = floats(final_value, "final_value")?;
        let mut columns = obs.columns();
        columns.extend(action.columns());
        columns.extend(extras.iter().flat_map(Intake::columns));
        let final_columns: Option<CallColumns<'_>> = final_obs.as_ref().map(Intake::columns);
        let step = TransitionStep {
            columns: &columns,
            rewards: reward.as_slice(),
            terminated: &terminated,
            truncated: &truncated,
            q_taken: q_taken.as_ref().map(Numbers::as_slice),
            bootstrap: bootstrap.as_ref().map(Numbers::as_slice),
            final_obs: final_columns.as_deref(),
            final_value: final_value.as_ref().map(Numbers::as_slice),
        };
        let bytes = columns.iter().map(|cells| cells.bytes.len()).sum();
        let stored = self.sending.send_stored(py, &self.table, &self.writer, bytes, |writer| {
            let items = match writer {
                Some(writer) => {
                    writer.set_priority_unit(priority_unit)?;
                    writer.append(&step)?
                }
                None => Inserts::new(),
            };
            let of_items = items.len() * bytes / self.options.num_envs;
            Ok((items, of_items))
        })?;
        drop(readers);
        let (sent, unconfirmed) = stored.map_or_else(|error| (0, Err(error)), |(sent, load)| (sent, Ok(load)));
        self.sending.room_after_step(py, unconfirmed)?;
        Ok(sent)
    }

    #[doc = stub!("TransitionWriter.end_episodes")]
    #[pyo3(signature = (*, bootstrap_value=None))]
    fn end_episodes(&self, py: Python<'_>, bootstrap_value: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        self.sending.replay(py)?;
        let values = bootstrap_value.map(|values| numbers::<f64>(values, "bootstrap_value")).transpose()?;
        let values = values.as_ref().map(Numbers::as_slice);
        if let Some(got) = values.map(<[f64]>::len).filter(|got| *got != self.options.num_envs) {
            let want = self.options.num_envs;
            return Err(PyValueError::new_err(format!("bootstrap_value has {got} values for {want} environments")));
        }
        let items = locked(py, &self.writer, 0, |writer| match writer {
            Some(writer) => writer.finish(values),
            None => Ok(Inserts::new()),
        })?;
        let sent = items.len();
        self.sending.send(py, &self.table, items, 0)?;
        Ok(sent)
    }

    /// The seconds that its calls may wait, the client's default included; None means no limit.
    #[getter]
    fn _timeout(&self) -> Option<f64> {
        self.sending.timeout()
    }

    /// Refuses later calls. Idempotent.
    fn _close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    #[doc = stub!("TransitionWriter.flush")]
    #[pyo3(signature = (block_until_num_items=Count::of(0), *, timeout=None, durable=false),
        text_signature = "($self, block_until_num_items=0, *, timeout=None, durable=False)")]
    fn flush(&self, py: Python<'_>, block_until_num_items: Count, timeout: Option<f64>, durable: bool) -> PyResult<()> {
        self.sending.flush(py, block_until_num_items, timeout, durable)
    }

    #[doc = stub!("TransitionWriter.num_in_flight")]
    #[getter]
    fn num_in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.sending.num_in_flight(py)
    }

    #[doc = stub!("TransitionWriter.num_dropped")]
    #[getter]
    fn num_dropped(&self, py: Python<'_>) -> PyResult<u64> {
        self.sending.replay(py)?;
        locked(py, &self.writer, 0, |writer| Ok(writer.as_ref().map_or(0, Core::dropped)))
    }
}

impl FirstSchemas {
    fn check(
        &self,
        py: Python<'_>,
        obs: &Intake<'_>,
        action: &Intake<'_>,
        extras: Option<&Arc<Schema>>,
    ) -> PyResult<()> {
        check_same(py, "obs", &self.obs, &obs.schema)?;
        check_same(py, "action", &self.action, &action.schema)?;
        match (&self.extras, extras) {
            (None, None) => Ok(()),
            (Some(first), Some(now)) => check_same(py, "", first, now),
            _ => Err(PyValueError::new_err("extras must be given in every append, or in none")),
        }
    }
}
