//! The forms of a writer's items, each created once: items of the same form share one pattern.

use crate::item::{Cells, Form, Pattern, PatternColumn};
use crate::spec::{ColumnSpec, Structure};
use std::sync::Arc;

/// The most forms that are kept; a writer's items repeat few forms. The oldest is created again if it recurs.
const KEPT: usize = 32;

/// One column of an item: the writer's column, and the cells relative to the item's anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormColumn {
    pub(super) column: u32,
    pub(super) part: u32,
    pub(super) within: u32,
    pub(super) cells: Cells,
    pub(super) squeeze: bool,
}

struct KnownForm {
    columns: Vec<FormColumn>,
    structure: Arc<Structure>,
    pattern: Form,
}

/// The forms, the latest first.
#[derive(Default)]
pub(super) struct Forms {
    forms: Vec<KnownForm>,
    /// True if items are whole steps ([`Pattern::timestep`]).
    pub(super) timestep: bool,
    /// True if items must be like others of their table ([`Pattern::alike`]).
    pub(super) alike: bool,
}

impl Forms {
    /// The pattern of that form; `spec` returns the specification of a writer's column.
    pub(super) fn intern<'a>(
        &mut self,
        structure: &Arc<Structure>,
        columns: &[FormColumn],
        spec: impl Fn(u32) -> &'a ColumnSpec,
    ) -> Form {
        let found = self.forms.iter().position(|form| {
            form.columns == columns && (Arc::ptr_eq(&form.structure, structure) || form.structure == *structure)
        });
        if let Some(index) = found {
            self.forms[..=index].rotate_right(1);
            return self.forms[0].pattern.clone();
        }
        let pattern_columns = structure.paths().into_iter().zip(columns).map(|(path, column)| PatternColumn {
            spec: ColumnSpec { path, ..spec(column.column).clone() },
            part: column.part,
            column: column.within,
            cells: column.cells.clone(),
            squeeze: column.squeeze,
            stack_axis: 0,
        });
        let pattern = Form::new(Pattern {
            columns: pattern_columns.collect(),
            structure: (**structure).clone(),
            timestep: self.timestep,
            alike: self.alike,
        });
        self.forms.truncate(KEPT - 1);
        let form = KnownForm { columns: columns.to_vec(), structure: Arc::clone(structure), pattern: pattern.clone() };
        self.forms.insert(0, form);
        pattern
    }
}
