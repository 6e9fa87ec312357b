//! Cells whose first size a signature leaves open: items get one form, whatever their sizes are.

use crate::item::{Form, Pattern, PatternColumn};
use crate::spec::{ColumnSignature, ColumnSpec, Signature};

/// The forms of the last item, as it came and as the table keeps it.
#[derive(Debug, Default)]
pub(super) struct OpenCells(Option<(Form, Form)>);

impl OpenCells {
    /// Replaces the form of an item that fits the signature: the first size of a cell becomes
    /// [`ANY_SIZE`](crate::spec::ANY_SIZE) where the signature has `None`.
    ///
    /// Batches of such items are the same whether their sizes happen to be equal or not.
    #[inline]
    pub(super) fn open(&mut self, signature: Option<&Signature>, form: &mut Form) {
        let Some(signature) = signature else { return };
        if !self.0.as_ref().is_some_and(|(came, kept)| came.same(form) && kept.same(form)) {
            self.open_other(signature, form);
        }
    }

    #[inline(never)]
    fn open_other(&mut self, signature: &Signature, form: &mut Form) {
        let kept = match &self.0 {
            Some((came, kept)) if came.same(form) || opens(kept, form) => kept.clone(),
            _ => opened(signature, form).map_or_else(|| form.clone(), Form::new),
        };
        self.0 = Some((form.clone(), kept.clone()));
        *form = kept;
    }
}

/// True if the pattern differs from an opened one only in the sizes that are open there.
///
/// Another item of the table has that form, so the signature opens the same sizes of this one.
fn opens(opened: &Pattern, pattern: &Pattern) -> bool {
    let column = |(open, column): (&PatternColumn, &PatternColumn)| {
        let spec = open.spec == column.spec || (open.spec.is_variable() && open.spec.is_alike(&column.spec));
        let place = |column: &PatternColumn| (column.part, column.column, column.squeeze, column.stack_axis);
        spec && place(open) == place(column) && open.cells == column.cells
    };
    opened.columns.iter().any(|open| open.spec.is_variable())
        && opened.columns.len() == pattern.columns.len()
        && (opened.timestep, opened.alike) == (pattern.timestep, pattern.alike)
        && opened.columns.iter().zip(&pattern.columns).all(column)
        && opened.structure == pattern.structure
}

/// The pattern with the sizes open that the signature leaves open; `None` if there is none.
fn opened(signature: &Signature, pattern: &Pattern) -> Option<Pattern> {
    let mut opened = pattern.clone();
    let order = super::options::order_of(signature, pattern);
    let mut changed = false;
    for (at, want) in signature.columns.iter().enumerate() {
        let column = &mut opened.columns[order.as_ref().map_or(at, |order| order[at])];
        if let Some(spec) = open_spec(want, column).filter(|spec| *spec != column.spec) {
            (column.spec, changed) = (spec, true);
        }
    }
    changed.then_some(opened)
}

fn open_spec(want: &ColumnSignature, column: &PatternColumn) -> Option<ColumnSpec> {
    // With a time axis, or the axis of one that a single step has in the signature, the cell's axes come after it.
    let first = match want.shape.len().checked_sub(column.spec.shape.len())? {
        1 if column.squeeze || column.stack_axis == 0 => 1,
        0 => 0,
        _ => return None,
    };
    let is_open = want.shape.get(first).is_some_and(Option::is_none);
    is_open.then(|| column.spec.variable()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Cells;
    use crate::spec::{ANY_SIZE, DType, Structure};

    fn column(shape: &[usize], squeeze: bool) -> PatternColumn {
        let spec = ColumnSpec { path: String::new(), dtype: DType::Int32, shape: shape.to_vec() };
        let cells = if squeeze { Cells::one(0) } else { Cells::range(0, 4) };
        PatternColumn { spec, part: 0, column: 0, cells, squeeze, stack_axis: 0 }
    }

    fn opened_shape(column: PatternColumn, timestep: bool, want: &[Option<usize>]) -> Vec<usize> {
        let want = ColumnSignature { path: String::new(), dtype: DType::Int32, shape: want.to_vec() };
        let signature = Signature { columns: vec![want], structure: Structure::Leaf };
        let mut form =
            Form::new(Pattern { columns: [column].into(), structure: Structure::Leaf, timestep, alike: false });
        super::super::options::check_pattern(&signature, &form).unwrap();
        OpenCells::default().open(Some(&signature), &mut form);
        form.columns[0].spec.shape.clone()
    }

    #[test]
    fn the_first_size_of_a_cell_is_open_where_the_signature_has_none_for_it() {
        const ANY: Option<usize> = None;
        assert_eq!(opened_shape(column(&[3], true), false, &[ANY]), [ANY_SIZE]);
        assert_eq!(opened_shape(column(&[3, 2], true), false, &[ANY, Some(2)]), [ANY_SIZE, 2]);
        assert_eq!(opened_shape(column(&[3], true), true, &[Some(1), ANY]), [ANY_SIZE], "a step with a time axis");
        assert_eq!(opened_shape(column(&[3], false), false, &[Some(4), ANY]), [ANY_SIZE], "behind a time axis");
        assert_eq!(opened_shape(column(&[3], false), true, &[ANY]), [ANY_SIZE], "the signature of a step");
        // The time axis is not a size of a cell, and neither are further axes.
        assert_eq!(opened_shape(column(&[3], false), false, &[ANY, Some(3)]), [3]);
        assert_eq!(opened_shape(column(&[], false), false, &[ANY]), [] as [usize; 0]);
        assert_eq!(opened_shape(column(&[2, 3], true), false, &[Some(2), ANY]), [2, 3]);
        assert_eq!(opened_shape(column(&[3, 0], true), false, &[ANY, Some(0)]), [3, 0], "no bytes to count");
    }

    #[test]
    fn items_of_all_sizes_have_one_form() {
        let want = ColumnSignature { path: String::new(), dtype: DType::Int32, shape: vec![None] };
        let signature = Signature { columns: vec![want], structure: Structure::Leaf };
        let mut open = OpenCells::default();
        let forms = [3, 5, 3, 7].map(|size| {
            let columns = [column(&[size], true)].into();
            let mut form = Form::new(Pattern { columns, structure: Structure::Leaf, timestep: true, alike: false });
            open.open(Some(&signature), &mut form);
            form
        });
        assert!(forms.iter().all(|form| form.same(&forms[0])));
        let mut again = forms[0].clone();
        open.open(Some(&signature), &mut again);
        assert!(again.same(&forms[0]), "a form that is open stays");
    }
}
