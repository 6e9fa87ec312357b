//! Items over the steps of a writer: the cells that they may refer to, and the chunks of these cells.

use super::spans::{KEPT_SPANS, SpanKey, SpannedBody};
use super::{StepWriter, WriterColumn};
use crate::append::forms::FormColumn;
use crate::error::{CountedNoun, Error, Result};
use crate::item::{self, Body, Item, Span};
use crate::spec::Structure;
use smallvec::SmallVec;
use std::sync::Arc;

/// One column of a new item: a writer's column and steps of it, counted from the writer's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemColumn {
    /// The writer's column, as numbered by [`StepWriter::resolve`].
    pub column: usize,
    /// The first step.
    pub start: u64,
    /// The steps relative to `start`.
    pub cells: item::Cells,
    /// True for one cell without a time axis.
    pub squeeze: bool,
}

impl ItemColumn {
    fn steps(&self) -> impl Iterator<Item = i64> + '_ {
        self.cells.iter().map(|relative| self.start as i64 + relative)
    }
}

/// The form of items that a writer creates repeatedly.
#[derive(Clone, Debug)]
pub struct ItemForm {
    pattern: item::Form,
    spans: Spans,
    /// The item's anchor relative to the step at which it is created.
    anchor: i64,
    /// Bytes of the cells whose width is fixed.
    bytes: usize,
    /// The columns whose cells differ in width, and the number of their cells.
    differing: SmallVec<[(usize, usize); 1]>,
}

/// The first and the last step of each column group, relative to the item's anchor.
type Spans = SmallVec<[(usize, i64, i64); 2]>;

/// The episodes of an item's cells, other than the one in which it begins.
type OtherEpisodes = SmallVec<[u32; 2]>;

impl StepWriter {
    /// Refuses a cell that an item cannot refer to, with the reason.
    pub fn check_cell(&self, column: usize, step: i64) -> Result<()> {
        let WriterColumn { spec, options, group, within, .. } = &self.columns[column];
        let latest = if self.step_open { self.step } else { self.step.saturating_sub(1) };
        let refuse = |why: String| Err(Error::InvalidArgument(format!("column '{}': {why}", spec.path)));
        let shown = step - self.base as i64;
        if step < self.base as i64 || step > latest as i64 {
            let steps = CountedNoun(self.num_steps(), "step");
            return refuse(format!("step {shown} does not exist; the writer has {steps}"));
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
        for column in columns {
            for step in column.steps() {
                self.check_cell(column.column, step)?;
            }
        }
        // The first cell of the first column: it exists, so that no chunk of the item begins after it.
        let anchor = columns.first().and_then(|column| column.steps().next()).unwrap_or(0);
        let relative = columns.iter().map(|column| FormColumn {
            column: column.column as u32,
            part: 0,
            within: 0,
            cells: shifted(&column.cells, (column.start as i64 - anchor) as i32),
            squeeze: column.squeeze,
        });
        let (pattern, spans) = self.lay_out_item(structure, relative.collect())?;
        Ok(self.item_at(&pattern, &spans, anchor as u64))
    }

    /// The form of items over these columns, for many items: see [`StepWriter::item_of`].
    ///
    /// `start` is 0, and the cells count from the step at which an item is created.
    pub fn form(&mut self, structure: &Arc<Structure>, columns: &[ItemColumn]) -> Result<ItemForm> {
        let anchor = columns.first().and_then(|column| column.cells.iter().next()).unwrap_or(0);
        let relative = columns.iter().map(|column| FormColumn {
            column: column.column as u32,
            part: 0,
            within: 0,
            cells: shifted(&column.cells, -anchor as i32),
            squeeze: column.squeeze,
        });
        let fixed = |column: &ItemColumn| self.columns[column.column].spec.cell_bytes();
        let bytes = columns.iter().filter_map(|column| Some(column.cells.len() * fixed(column)?)).sum();
        let differing = columns.iter().filter(|column| fixed(column).is_none());
        let differing = differing.map(|column| (column.column, column.cells.len())).collect();
        let (pattern, spans) = self.lay_out_item(structure, relative.collect())?;
        Ok(ItemForm { pattern, spans, anchor, bytes, differing })
    }

    /// The bytes of an item's cells; where cells differ in width, as if all were as the latest.
    pub fn bytes_of(&self, form: &ItemForm) -> usize {
        let bytes = |(column, cells): &(usize, usize)| cells * self.cell_bytes(*column);
        form.bytes + form.differing.iter().map(bytes).sum::<usize>()
    }

    /// The item of that form at a step; every cell of it must exist ([`StepWriter::holds`]).
    #[inline]
    pub fn item_of(&mut self, form: &ItemForm, step: u64) -> Item {
        self.item_at(&form.pattern, &form.spans, (step as i64 + form.anchor) as u64)
    }

    /// True if the column has a value at the step and the step is kept.
    pub fn holds(&self, column: usize, step: i64) -> bool {
        let WriterColumn { options, group, within, written, .. } = &self.columns[column];
        let latest = if *written == Some(self.step) { self.step } else { self.step.saturating_sub(1) };
        (self.base as i64..=latest as i64).contains(&step)
            && step as u64 + options.keep_alive as u64 > latest
            && self.groups[*group].run.has(step as u64, *within)
    }

    /// The pattern of these columns, whose cells count from the anchor, and the steps of each group in it.
    fn lay_out_item(
        &mut self,
        structure: &Arc<Structure>,
        mut columns: SmallVec<[FormColumn; 8]>,
    ) -> Result<(item::Form, Spans)> {
        if columns.is_empty() || columns.len() != structure.num_leaves() {
            return Err(Error::InvalidArgument("an item needs at least one column".to_owned()));
        }
        let mut spans: Spans = SmallVec::new();
        for column in &mut columns {
            let WriterColumn { spec, group, within, .. } = &self.columns[column.column as usize];
            let (Some(first), Some(last)) = (column.cells.iter().min(), column.cells.iter().max()) else {
                return Err(Error::InvalidArgument(format!("column '{}' of the item has no cells", spec.path)));
            };
            let part = spans.iter().position(|(other, ..)| other == group).unwrap_or_else(|| {
                spans.push((*group, first, last));
                spans.len() - 1
            });
            spans[part].1 = spans[part].1.min(first);
            spans[part].2 = spans[part].2.max(last);
            (column.part, column.within) = (part as u32, *within as u32);
        }
        let pattern = self.forms.intern(structure, &columns, |column| &self.columns[column as usize].spec);
        Ok((pattern, spans))
    }

    #[inline]
    fn item_at(&mut self, pattern: &item::Form, spans: &Spans, anchor: u64) -> Item {
        let at = |relative: i64| (anchor as i64 + relative) as u64;
        let begins = spans.iter().map(|(_, first, _)| at(*first)).min().unwrap_or(anchor);
        let episode = self.episode_at(begins);
        let ends = spans.iter().map(|(.., last)| at(*last)).max().unwrap_or(anchor);
        let further = if self.episode_at(ends) == episode {
            OtherEpisodes::new()
        } else {
            self.further(pattern, anchor, episode)
        };
        let spans = spans.iter().map(|(group, first, last)| (*group, at(*first), at(*last))).collect();
        let (body, origin) = self.body(spans, &further);
        Item { body, pattern: pattern.clone(), anchor: (anchor - origin) as u32, episode, stream: self.stream }
    }

    /// The episodes of an item's cells except the one in which it begins, each once.
    #[cold]
    fn further(&self, pattern: &item::Form, anchor: u64, begins: u32) -> OtherEpisodes {
        let cells = pattern.columns.iter().flat_map(|column| column.cells.iter());
        let episodes = cells.map(|relative| self.episode_at((anchor as i64 + relative) as u64));
        let mut further: OtherEpisodes = episodes.filter(|episode| *episode != begins).collect();
        further.sort_unstable();
        further.dedup();
        further
    }

    /// The body for the spans of steps, and the step from which its positions count; with these further episodes.
    fn body(&mut self, spans: SpanKey, further: &OtherEpisodes) -> (Body, u64) {
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
            && further.is_empty()
        {
            let run = &groups[group].run;
            let link = run.get(run.link(first).expect("the step's chunk is kept"));
            return (Body::Chunk(Arc::clone(&link.chunk)), link.start);
        }
        let same = |known: &&SpannedBody| known.key == key && known.span.episodes[..] == further[..];
        if let Some(SpannedBody { span, origin, .. }) = self.spans.iter().find(same) {
            return (Body::Span(Arc::clone(span)), *origin);
        }
        let origin = key.iter().map(|(_, first, _)| *first).min().expect("an item has a part");
        let parts = key.iter().map(|(group, first, last)| {
            let run = &groups[*group].run;
            let link = |start| run.link(start).expect("the step's chunk is kept");
            run.part(link(*first), link(*last), origin)
        });
        let span = Arc::new(Span { parts: parts.collect(), episodes: further[..].into() });
        self.spans.truncate(KEPT_SPANS - 1);
        self.spans.insert(0, SpannedBody { key, span: Arc::clone(&span), origin });
        (Body::Span(span), origin)
    }
}

fn shifted(cells: &item::Cells, by: i32) -> item::Cells {
    match cells {
        item::Cells::Range { start, step, len } => item::Cells::Range { start: start + by, step: *step, len: *len },
        item::Cells::List(list) => item::Cells::List(list.iter().map(|cell| cell + by).collect()),
    }
}
