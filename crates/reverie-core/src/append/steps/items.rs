//! Items over the steps of a writer: which cells they may refer to, and the chunks under these.

use super::{Column, StepWriter};
use crate::append::forms::FormColumn;
use crate::error::{Error, Result};
use crate::item::{self, Body, Item};
use crate::spec::Structure;
use smallvec::SmallVec;
use std::sync::Arc;

/// One column of an item that is created: a writer's column and steps of it, counted from the writer's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemColumn {
    /// The writer's column, as [`StepWriter::resolve`] numbered it.
    pub column: usize,
    /// The first step.
    pub start: u64,
    /// The steps relative to `start`.
    pub cells: item::Cells,
    /// One cell without a time axis.
    pub squeeze: bool,
}

impl ItemColumn {
    fn steps(&self) -> impl Iterator<Item = i64> + '_ {
        self.cells.iter().map(|relative| self.start as i64 + relative)
    }
}

/// For each column group the first step, and the last.
pub(super) type SpanKey = SmallVec<[(usize, u64, u64); 2]>;

impl StepWriter {
    /// Refuses a cell that an item cannot refer to, and says why.
    pub fn check_cell(&self, column: usize, step: i64) -> Result<()> {
        let Column { spec, options, group, within, written } = &self.columns[column];
        let latest = if *written == Some(self.step) { self.step } else { self.step.saturating_sub(1) };
        let refuse = |why: String| Err(Error::InvalidArgument(format!("column '{}': {why}", spec.path)));
        let shown = step - self.base as i64;
        if step < self.base as i64 || step > latest as i64 {
            return refuse(format!("step {shown} does not exist; there are {} steps", self.num_steps()));
        }
        if step as u64 + (options.keep_alive as u64) <= latest {
            return refuse(format!(
                "step {shown} has expired: the writer keeps the last {} (num_keep_alive_refs)",
                options.keep_alive
            ));
        }
        if !self.groups[*group].run.has(step as u64, *within) {
            return refuse(format!("step {shown} holds no value (None)"));
        }
        Ok(())
    }

    /// The item over these cells, not yet in any table.
    pub fn item(&mut self, structure: &Arc<Structure>, columns: &[ItemColumn]) -> Result<Item> {
        if columns.is_empty() || columns.len() != structure.num_leaves() {
            return Err(Error::InvalidArgument("an item needs at least one column".to_owned()));
        }
        for column in columns {
            if column.cells.is_empty() {
                let path = &self.columns[column.column].spec.path;
                return Err(Error::InvalidArgument(format!("column '{path}' of the item has no cells")));
            }
            for step in column.steps() {
                self.check_cell(column.column, step)?;
            }
        }
        // The first cell of the first column: it exists, so that no chunk of the item begins behind it.
        let anchor = columns[0].steps().next().expect("an item column has cells") as u64;
        let mut spans: SpanKey = SmallVec::new();
        let mut form: SmallVec<[FormColumn; 8]> = SmallVec::with_capacity(columns.len());
        for column in columns {
            let Column { group, within, .. } = &self.columns[column.column];
            let first = column.steps().min().expect("an item column has cells") as u64;
            let last = column.steps().max().expect("an item column has cells") as u64;
            let part = spans.iter().position(|(other, ..)| other == group).unwrap_or_else(|| {
                spans.push((*group, first, last));
                spans.len() - 1
            });
            spans[part].1 = spans[part].1.min(first);
            spans[part].2 = spans[part].2.max(last);
            let shift = column.start as i64 - anchor as i64;
            form.push(FormColumn {
                column: column.column as u32,
                part: part as u32,
                within: *within as u32,
                cells: shifted(&column.cells, shift as i32),
                squeeze: column.squeeze,
            });
        }
        let pattern = self.forms.intern(structure, &form, |column| &self.columns[column as usize].spec);
        let begins = spans.iter().map(|(_, first, _)| *first).min().unwrap_or(anchor);
        let episode = self.episode_at(begins);
        let (body, origin) = self.body(spans);
        Ok(Item { body, pattern, anchor: (anchor - origin) as u32, episode, stream: self.stream })
    }

    /// The chunks under the spans of steps, and the step that their positions count from.
    fn body(&mut self, spans: SpanKey) -> (Body, u64) {
        let groups = &self.groups;
        // From steps to chunks: all items on the same chunks share one body.
        let key: SpanKey = spans
            .iter()
            .map(|(group, first, last)| {
                let link = |step| groups[*group].run.link(step).expect("the step's chunk is kept") as u64;
                let (first, last) = (link(*first), link(*last));
                (*group, groups[*group].run.get(first as usize).start, groups[*group].run.get(last as usize).start)
            })
            .collect();
        if let [(group, first, last)] = key[..]
            && first == last
        {
            let run = &groups[group].run;
            let link = run.get(run.link(first).expect("the step's chunk is kept"));
            return (Body::Chunk(Arc::clone(&link.chunk)), link.start);
        }
        if let Some((known, parts, origin)) = &self.span
            && *known == key
        {
            return (Body::Span(Arc::clone(parts)), *origin);
        }
        let origin = key.iter().map(|(_, first, _)| *first).min().expect("an item has a part");
        let parts = key.iter().map(|(group, first, last)| {
            let run = &groups[*group].run;
            let link = |start| run.link(start).expect("the step's chunk is kept");
            run.part(link(*first), link(*last), origin)
        });
        let parts = Arc::new(parts.collect::<Vec<_>>());
        self.span = Some((key, Arc::clone(&parts), origin));
        (Body::Span(parts), origin)
    }
}

fn shifted(cells: &item::Cells, by: i32) -> item::Cells {
    match cells {
        item::Cells::Range { start, step, len } => item::Cells::Range { start: start + by, step: *step, len: *len },
        item::Cells::List(list) => item::Cells::List(list.iter().map(|cell| cell + by).collect()),
    }
}
