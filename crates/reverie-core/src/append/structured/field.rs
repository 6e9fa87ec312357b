//! One field of the step: the column of its cells, and its values for conditions and priorities.

use super::config::ConfigNode;
use crate::append::ColumnCells;
use crate::append::steps::StepWriter;
use crate::error::{Error, Result};
use crate::item;
use crate::spec::{ColumnSpec, DType};

/// A field that a config uses.
pub(super) struct ConfigField {
    pub(super) path: String,
    /// True if a pattern takes it: its cells are stored.
    pub(super) stored: bool,
    /// True if a condition compares its value.
    pub(super) compared: bool,
    /// Set if a priority is computed from its cells.
    pub(super) errors: Option<LatestErrors>,
    /// The column's specification, once the field has had a value.
    pub(super) spec: Option<ColumnSpec>,
    /// The writer's column, if it is stored.
    pub(super) column: usize,
    /// The last step with a value; `unbroken` is the first of the run of steps with values that ends there.
    pub(super) last: Option<u64>,
    unbroken: u64,
    value: i128,
}

/// |x| of the latest steps, by step modulo their number.
pub(super) struct LatestErrors(Vec<f64>);

impl ConfigField {
    pub(super) fn new(path: String) -> Self {
        Self {
            path,
            stored: false,
            compared: false,
            errors: None,
            spec: None,
            column: 0,
            last: None,
            unbroken: 0,
            value: 0,
        }
    }

    /// Keeps |x| of this many steps.
    pub(super) fn keep_errors(&mut self, steps: usize) {
        let kept = self.errors.as_ref().map_or(0, |errors| errors.0.len());
        self.errors = Some(LatestErrors(vec![0.0; kept.max(steps)]));
    }

    /// Refuses values that a condition or a priority cannot use, and values that differ from those of earlier steps.
    ///
    /// `column` is the writer's column of the field, if it has one: its cells may differ in size.
    pub(super) fn check(&self, spec: &ColumnSpec, column: Option<&ColumnSpec>) -> Result<()> {
        let refuse = |want: &str| {
            Err(Error::Signature {
                path: self.path.clone(),
                got: format!("{} {:?}", spec.dtype, spec.shape),
                want: want.to_owned(),
            })
        };
        if self.compared && !(is_integer(spec.dtype) && spec.elements() == 1) {
            return refuse("one integer or bool, as a condition compares it");
        }
        if self.errors.is_some() && !(is_number(spec.dtype) && spec.elements() == 1) {
            return refuse("one float32, float64 or integer, as td_error makes a priority of it");
        }
        let fits = |known: &ColumnSpec| {
            (known.dtype, &known.shape) == (spec.dtype, &spec.shape) || (known.is_variable() && known.is_alike(spec))
        };
        match column.or(self.spec.as_ref()) {
            Some(known) if !fits(known) => {
                refuse(&format!("{} {}, as in the steps before", known.dtype, known.shape_text()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a cell whose width differs from the field's.
    #[inline]
    pub(super) fn check_width(&self, cells: &ColumnCells<'_>) -> Result<()> {
        match self.spec.as_ref().and_then(ColumnSpec::cell_bytes) {
            Some(want) if want != cells.bytes.len() => Err(Error::Signature {
                path: self.path.clone(),
                got: format!("{} bytes", cells.bytes.len()),
                want: format!("{want} bytes"),
            }),
            _ => Ok(()),
        }
    }

    /// The |x| of a cell, if priorities are computed from it; refused if it is not finite.
    pub(super) fn error_of(&self, cells: &ColumnCells<'_>) -> Result<Option<f64>> {
        let (Some(_), Some(spec)) = (&self.errors, &self.spec) else { return Ok(None) };
        let error = real(spec.dtype, cells.bytes).abs();
        match error.is_finite() {
            true => Ok(Some(error)),
            false => Err(Error::InvalidArgument(format!(
                "column '{}' is {error}: a priority made of td errors needs finite numbers",
                self.path
            ))),
        }
    }

    /// Notes the value of a step.
    #[inline]
    pub(super) fn note(&mut self, step: u64, cells: &ColumnCells<'_>, error: Option<f64>) {
        if self.last.is_none_or(|last| last + 1 != step) {
            self.unbroken = step;
        }
        self.last = Some(step);
        if let (true, Some(spec)) = (self.compared, &self.spec) {
            self.value = integer(spec.dtype, cells.bytes);
        }
        if let (Some(error), Some(LatestErrors(errors))) = (error, &mut self.errors) {
            let at = step as usize % errors.len();
            errors[at] = error;
        }
    }

    /// Clears the history.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// The value at that step, for a condition.
    #[inline]
    pub(super) fn value_at(&self, step: u64) -> Option<i128> {
        (self.last == Some(step)).then_some(self.value)
    }

    /// True if the column has a value at every step that the node takes at `step`.
    #[inline]
    pub(super) fn has(&self, node: &NodeSpan, cells: &item::Cells, steps: &StepWriter, step: u64) -> bool {
        let (first, latest) = (step as i64 + node.first, step as i64 + node.last);
        let Some(last) = self.last else { return false };
        if latest > last as i64 {
            return false;
        }
        if first >= self.unbroken as i64 {
            return true;
        }
        // The step before the unbroken run holds no value.
        if node.consecutive && latest >= self.unbroken as i64 {
            return false;
        }
        cells.iter().all(|cell| steps.holds(self.column, step as i64 + cell))
    }

    /// `w * max |x| + (1 - w) * mean |x|` over the cells, all of which have values.
    pub(super) fn priority(&self, cells: &item::Cells, step: u64, max_weight: f64) -> f64 {
        let Some(LatestErrors(errors)) = &self.errors else { return 0.0 };
        let at = |cell: i64| errors[(step as i64 + cell) as usize % errors.len()];
        let (mut max, mut sum) = (0.0f64, 0.0f64);
        for error in cells.iter().map(at) {
            max = max.max(error);
            sum += error;
        }
        max_weight * max + (1.0 - max_weight) * (sum / cells.len() as f64)
    }
}

/// The steps that a node spans, relative to the latest.
pub(super) struct NodeSpan {
    pub(super) first: i64,
    last: i64,
    /// The item is known to take every step between the first and the last.
    consecutive: bool,
}

impl NodeSpan {
    pub(super) fn of(node: &ConfigNode) -> Self {
        let first = node.cells.iter().min().unwrap_or(0);
        let last = node.cells.iter().max().unwrap_or(0);
        let consecutive = match &node.cells {
            item::Cells::Range { step, .. } => step.abs() == 1 || first == last,
            item::Cells::List(_) => first == last,
        };
        Self { first, last, consecutive }
    }
}

fn is_integer(dtype: DType) -> bool {
    use DType::{Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(dtype, Bool | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

fn is_number(dtype: DType) -> bool {
    is_integer(dtype) || matches!(dtype, DType::Float32 | DType::Float64)
}

/// The value of one element of an integer or bool dtype.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    macro_rules! of {
        ($kind:ty) => {
            bytes.try_into().map_or(0, |bytes| i128::from(<$kind>::from_ne_bytes(bytes)))
        };
    }
    match dtype {
        DType::Int8 => of!(i8),
        DType::Int16 => of!(i16),
        DType::Int32 => of!(i32),
        DType::Int64 => of!(i64),
        DType::UInt16 => of!(u16),
        DType::UInt32 => of!(u32),
        DType::UInt64 => of!(u64),
        _ => of!(u8),
    }
}

/// The value of one element of a number dtype.
fn real(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::Float32 => bytes.try_into().map_or(f64::NAN, |bytes| f64::from(f32::from_ne_bytes(bytes))),
        DType::Float64 => bytes.try_into().map_or(f64::NAN, f64::from_ne_bytes),
        _ => integer(dtype, bytes) as f64,
    }
}
