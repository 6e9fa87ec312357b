//! Draws that become no batch, or whose request ended early: the error has them, as those of a consuming table left it.

use crate::batch::Batcher;
use crate::enter::late;
use crate::errors::raise;
use crate::read_options::ReadOptions;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::Error;
use reverie_core::batch::ONE_BY_ONE;
use reverie_core::sample::{DrawnBatch, Draws, SampleOutcome};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The error of an answer to a request for a batch that has none.
pub fn no_batch() -> Error {
    Error::Protocol("an answer without a batch".to_owned())
}

impl Batcher {
    /// The `reverie.Batch` of these draws, or an error with them, see [`Batcher::each`].
    pub fn batch_or_singles<'py>(
        &self,
        py: Python<'py>,
        mut drawn: DrawnBatch,
        read_options: &ReadOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.batch(py, &mut drawn, read_options)
            .map_err(|error| with_draws(py, error, Singles::new(Vec::new(), untouched(drawn), read_options)))
    }

    /// Every item that was drawn, as a batch of its own.
    pub fn singles<'py>(
        &self,
        py: Python<'py>,
        draws: &Draws,
        read_options: &ReadOptions,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        (0..draws.len()).map(|draw| self.batch(py, &mut DrawnBatch::Items(draws.one(draw)), read_options)).collect()
    }

    /// Each as a `reverie.Batch`.
    /// If one cannot become a batch, the error's `drawn` has all draws: those of batches that were made before it, and
    /// each other draw as a batch of its own. If memory ran out, `drawn` is an iterator that makes one at a time.
    pub fn each<'py>(
        &self,
        py: Python<'py>,
        batches: Vec<DrawnBatch>,
        read_options: &ReadOptions,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut made = Vec::with_capacity(batches.len());
        let mut rest = batches.into_iter();
        while let Some(mut drawn) = rest.next() {
            match self.batch(py, &mut drawn, read_options) {
                Ok(batch) => made.push(batch),
                Err(error) => {
                    let rest = untouched(drawn).into_iter().chain(rest);
                    return Err(with_draws(py, error, Singles::new(made, rest, read_options)));
                }
            }
        }
        Ok(made)
    }

    /// The one requested batch, or the error with the draws that were made.
    pub fn whole<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        sampled: SampleOutcome,
        read_options: &ReadOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        match sampled {
            SampleOutcome { batches, error: None } => match batches.into_iter().next() {
                Some(drawn) => self.batch_or_singles(py, drawn, read_options),
                None => Err(raise(py, no_batch())),
            },
            SampleOutcome { batches, error: Some(error) } => {
                Err(self.failed(py, what, batches, error, read_options)?)
            }
        }
    }

    /// Adds the draws of a request that ended early: `partial`, or `drawn` if they are more than one batch.
    pub fn partial(
        &self,
        py: Python<'_>,
        sampled: SampleOutcome,
        read_options: &ReadOptions,
        with: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let mut drawn = self.each(py, sampled.batches, read_options)?;
        if drawn.len() > 1 {
            return with.set_item("drawn", drawn);
        }
        with.set_item("partial", drawn.pop())
    }

    /// The exception for an error, with the draws that were made before it.
    /// They are in `partial` for a deadline, and in `drawn` for draws that cannot be one batch.
    pub fn failed(
        &self,
        py: Python<'_>,
        what: &str,
        batches: Vec<DrawnBatch>,
        error: Error,
        read_options: &ReadOptions,
    ) -> PyResult<PyErr> {
        let mut drawn = self.each(py, batches, read_options)?;
        if let Error::Deadline(why) | Error::NotCommitted { why, .. } = error {
            let late = late(py, what, &why, |with| match drawn.len() {
                0 | 1 => with.set_item("partial", drawn.pop()),
                _ => Ok(()),
            });
            if !drawn.is_empty() {
                late.value(py).setattr("drawn", drawn)?;
            }
            return Ok(late);
        }
        let raised = raise(py, error);
        if !drawn.is_empty() {
            raised.value(py).setattr("drawn", drawn)?;
        }
        Ok(raised)
    }
}

fn is_out_of_memory(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyMemoryError>(py)
}

/// The draws after an attempt to make a batch of them, which takes the arrays of those that were gathered here.
fn untouched(drawn: DrawnBatch) -> Option<DrawnBatch> {
    match drawn {
        DrawnBatch::Items(_) | DrawnBatch::Arrays(_) => Some(drawn),
        DrawnBatch::Gathered(_) => None,
    }
}

/// The error, whose `drawn` has the draws: a list, or where memory ran out the iterator.
fn with_draws(py: Python<'_>, error: PyErr, singles: Singles) -> PyErr {
    let mut read = Vec::new();
    let mut is_iterator = is_out_of_memory(py, &error);
    while !is_iterator {
        match singles.next(py, |_| true) {
            Ok(Some(batch)) => read.push(batch),
            Ok(None) => break,
            Err(_) => is_iterator = true,
        }
    }
    let drawn = match is_iterator {
        true => singles.after(read).into_pyobject(py).map(Bound::into_any),
        false => read.into_pyobject(py),
    };
    match drawn.and_then(|drawn| error.value(py).setattr("drawn", drawn)) {
        Ok(()) if is_iterator => note_copies(py, &error),
        Ok(()) => {}
        Err(other) => return other,
    }
    error
}

/// Adds a note on which of the draws a copy of the error has, if there is memory for it.
fn note_copies(py: Python<'_>, error: &PyErr) {
    let note = || error.value(py).call_method1("add_note", (carried_module(py)?.getattr("NOTE")?,));
    let _ = note();
}

fn carried_module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    PyModule::import(py, "reverie._carried")
}

/// Draws that became no batch: an iterator that makes a batch of each, one at a time.
#[pyclass(frozen, module = "reverie._native")]
pub struct Singles {
    rest: Mutex<VecDeque<UnreadDraws>>,
    read_options: ReadOptions,
    batcher: Batcher,
}

/// The function that unpickling calls, the draws that it gets, and the number of missing ones.
type ReducedDraws<'py> = (Bound<'py, PyAny>, (Vec<Bound<'py, PyAny>>, usize));

enum UnreadDraws {
    /// A batch that was made.
    Made(Py<PyAny>),
    /// The draws at these positions.
    Each(Arc<Draws>, Range<usize>),
    /// Arrays that are one batch.
    Whole(Box<DrawnBatch>),
}

impl UnreadDraws {
    fn of(drawn: DrawnBatch) -> Self {
        match drawn {
            DrawnBatch::Items(draws) => {
                let all = 0..draws.len();
                Self::Each(Arc::new(draws), all)
            }
            arrays => Self::Whole(Box::new(arrays)),
        }
    }
}

impl Singles {
    fn new(
        made: Vec<Bound<'_, PyAny>>,
        rest: impl IntoIterator<Item = DrawnBatch>,
        read_options: &ReadOptions,
    ) -> Self {
        let rest = Mutex::new(rest.into_iter().map(UnreadDraws::of).collect());
        Self { rest, read_options: read_options.clone(), batcher: Batcher::default() }.after(made)
    }

    /// This reader with these batches before the rest.
    fn after(self, made: Vec<Bound<'_, PyAny>>) -> Self {
        self.put_back(&made);
        self
    }

    fn put_back(&self, batches: &[Bound<'_, PyAny>]) {
        batches.iter().rev().for_each(|batch| self.rest().push_front(UnreadDraws::Made(batch.clone().unbind())));
    }

    fn rest(&self) -> MutexGuard<'_, VecDeque<UnreadDraws>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the next batch is made of. The lock is not held while it is made: that may run Python code.
    fn take(&self) -> Option<UnreadDraws> {
        let mut rest = self.rest();
        loop {
            match rest.front_mut() {
                Some(UnreadDraws::Each(draws, which)) => match which.next() {
                    Some(draw) => return Some(UnreadDraws::Each(Arc::clone(draws), draw..draw + 1)),
                    None => drop(rest.pop_front()),
                },
                _ => return rest.pop_front(),
            }
        }
    }

    /// A batch of one of the draws. If it cannot be read as requested, it is read as a whole.
    fn single<'py>(&self, py: Python<'py>, draws: &Draws, draw: usize) -> PyResult<Bound<'py, PyAny>> {
        let read =
            |read_options: &ReadOptions| self.batcher.batch(py, &mut DrawnBatch::Items(draws.one(draw)), read_options);
        match read(&self.read_options) {
            Err(error) if !is_out_of_memory(py, &error) => {
                read(&ReadOptions { ragged: ONE_BY_ONE.ragged, columns: None })
                    .map_err(|other| if is_out_of_memory(py, &other) { other } else { error })
            }
            outcome => outcome,
        }
    }

    /// The next batch; where an error is to be `kept`, the next call tries the same one again.
    fn next<'py>(&self, py: Python<'py>, kept: impl Fn(&PyErr) -> bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(unread) = self.take() else { return Ok(None) };
        let (batch, again) = match unread {
            UnreadDraws::Made(batch) => return Ok(Some(batch.into_bound(py))),
            UnreadDraws::Each(draws, which) => {
                let batch = self.single(py, &draws, which.start);
                (batch, Some(UnreadDraws::Each(draws, which)))
            }
            UnreadDraws::Whole(mut drawn) => {
                let batch = self.batcher.batch(py, &mut drawn, &self.read_options);
                (batch, untouched(*drawn).map(UnreadDraws::of))
            }
        };
        if batch.as_ref().is_err_and(kept) {
            again.into_iter().for_each(|again| self.rest().push_front(again));
        }
        batch.map(Some)
    }
}

#[pymethods]
impl Singles {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __len__(&self) -> usize {
        let of = |unread: &UnreadDraws| match unread {
            UnreadDraws::Made(_) | UnreadDraws::Whole(_) => 1,
            UnreadDraws::Each(_, which) => which.len(),
        };
        self.rest().iter().map(of).sum()
    }

    /// The next draw as a batch of one. If there is no memory for it, the next call tries it again; other errors skip
    /// it.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py, |error| is_out_of_memory(py, error))
    }

    /// A copy in another process: it has the first draws, whose number of bytes is limited, and counts the others.
    /// No draw is taken; those that were read for it stay in memory.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<ReducedDraws<'py>> {
        let carried_module = carried_module(py)?;
        let (size_of, mut room) =
            (carried_module.getattr("size_of")?, carried_module.getattr("CARRIED_BYTES")?.extract::<usize>()?);
        let (mut read, mut fits) = (Vec::new(), 0);
        // Any error ends it: the draw is tried again when it is read here.
        while let Ok(Some(batch)) = self.next(py, |_| true) {
            let left = size_of.call1((&batch,)).and_then(|size| Ok(room.checked_sub(size.extract()?)));
            read.push(batch);
            let Ok(Some(left)) = left else { break };
            (room, fits) = (left, fits + 1);
        }
        let missing = read.len() - fits + self.__len__();
        self.put_back(&read);
        read.truncate(fits);
        Ok((carried_module.getattr("CarriedDraws")?, (read, missing)))
    }
}
