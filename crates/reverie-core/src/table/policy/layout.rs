//! The layout that the items of a table without a signature have: that of its first insert.

use crate::error::{Error, Result};
use crate::item::{Form, Pattern, PatternColumn};
use crate::spec::ANY_SIZE;

/// The form of the first item whose form is [`Pattern::alike`]; `None` before it.
#[derive(Debug, Default)]
pub(super) struct TableLayout(Option<Form>);

impl TableLayout {
    /// The layout of items of this form.
    pub(super) fn of(form: Option<&Form>) -> Self {
        Self(form.cloned())
    }

    /// True once an item has set it.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the layout of the first item that must be like others, and refuses a later one with another layout.
    ///
    /// The lengths of columns with a time axis may differ.
    pub(super) fn admit(&mut self, table: &str, form: &Form) -> Result<()> {
        if !form.alike {
            return Ok(());
        }
        match &self.0 {
            Some(first) => check_layout(table, first, form),
            None => {
                self.0 = Some(form.clone());
                Ok(())
            }
        }
    }
}

fn check_layout(table: &str, first: &Pattern, other: &Pattern) -> Result<()> {
    let refuse = |path: &str, got: String, want: String| {
        let want = format!(
            "{want}, the layout that table '{table}' took from its first insert; reset the table to change it, or give \
             it a signature"
        );
        Err(Error::Signature { path: path.to_owned(), got, want })
    };
    if let Some((path, got, want)) = first.structure.difference(&other.structure) {
        return refuse(&path, got, want);
    }
    for (want, got) in first.columns.iter().zip(&*other.columns) {
        if want.spec != got.spec || (want.squeeze, want.stack_axis) != (got.squeeze, got.stack_axis) {
            return refuse(&got.spec.path, described(got), described(want));
        }
    }
    Ok(())
}

/// Dtype and shape, with `any` for the length of a time axis.
fn described(column: &PatternColumn) -> String {
    let mut spec = column.spec.clone();
    if !column.squeeze {
        spec.shape.insert(usize::from(column.stack_axis).min(spec.shape.len()), ANY_SIZE);
    }
    format!("{} {}", spec.dtype, spec.shape_text())
}
