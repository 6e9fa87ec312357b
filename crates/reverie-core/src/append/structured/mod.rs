//! The structured writer: patterns define the items to create, conditions define when.
//!
//! Every step is matched against them.
//!
//! A config creates at most one item per step: at the first append, or at the end of the episode, at which all its
//! conditions hold and all its cells exist. It costs a few comparisons; cells are checked one by one only if a step
//! without a value is within reach.

mod config;
mod field;

pub use config::{Config, ConfigNode, PriorityRule, Quantity, Relation, StepCondition};

use super::sink::ColumnCells;
use super::steps::{ItemColumn, ItemForm, StepWriter, WriterOptions};
use crate::chunk::{Compression, Meter};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::spec::{ColumnSpec, Schema, Structure};
use crate::table::Priority;
use field::{ConfigField, NodeSpan};
use smallvec::SmallVec;
use std::sync::Arc;

/// An item that a config created.
#[derive(Clone, Debug)]
pub struct CreatedItem {
    /// The config, by its position among the given ones.
    pub config: usize,
    /// The item, not yet in any table.
    pub item: Item,
    /// The priority of the item.
    pub priority: Priority,
    /// Bytes of its cells.
    pub bytes: usize,
}

/// The items of one call, in the order of the configs.
pub type CreatedItems = SmallVec<[CreatedItem; 2]>;

struct Program {
    config: Config,
    needs: Vec<NodeSpan>,
    /// Set once every column of it was seen.
    form: Option<ItemForm>,
    /// The step of its last item; -1 before the first.
    applied: i64,
}

/// Creates items from steps by configs; never blocks.
pub struct StructuredWriter {
    steps: StepWriter,
    fields: Vec<ConfigField>,
    programs: Vec<Program>,
    /// The open step, or the next one, counted from the writer's start.
    step: u64,
    /// The first step of the episode.
    episode: u64,
}

impl StructuredWriter {
    /// A writer for steps with these fields (paths); configs refer to them by index.
    pub fn new(meter: Arc<Meter>, compression: Compression, fields: Vec<String>, configs: Vec<Config>) -> Result<Self> {
        if configs.is_empty() {
            return Err(Error::InvalidArgument("a structured writer needs at least one config".to_owned()));
        }
        configs.iter().try_for_each(|config| config.check(&fields))?;
        let mut fields: Vec<ConfigField> = fields.into_iter().map(ConfigField::new).collect();
        let mut keep_alive = 1;
        for config in &configs {
            for node in &config.nodes {
                let reach = (1 - NodeSpan::of(node).first) as usize;
                keep_alive = keep_alive.max(reach);
                fields[node.field].stored = true;
                if matches!(config.rule, PriorityRule::TdError { field, .. } if field == node.field) {
                    fields[node.field].keep_errors(reach);
                }
            }
            for condition in &config.conditions {
                if let StepCondition::Compare { quantity: Quantity::Data(field), .. } = condition {
                    fields[*field].compared = true;
                }
            }
        }
        let steps = StepWriter::metered(meter, WriterOptions { keep_alive, chunk_length: None, compression })?;
        let program = |config: Config| Program {
            needs: config.nodes.iter().map(NodeSpan::of).collect(),
            config,
            form: None,
            applied: -1,
        };
        Ok(Self { steps, fields, programs: configs.into_iter().map(program).collect(), step: 0, episode: 0 })
    }

    /// Cells of these fields may differ in the size of their first axis: their paths and the numbers of a cell's axes.
    #[must_use]
    pub fn of_variable(mut self, fields: Vec<(String, usize)>) -> Self {
        self.steps = self.steps.of_variable(fields);
        self
    }

    /// The paths of the step, in the order of the fields' numbers.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.path.as_str())
    }

    /// True if a config uses the field; others are not stored, and may be left out.
    pub fn wants(&self, field: usize) -> bool {
        self.fields[field].stored || self.fields[field].compared
    }

    /// Takes the specifications of fields, before their first append. If one is refused, none is taken.
    ///
    /// Refuses a field whose specification changed, and one that conditions or priorities cannot use. A field whose
    /// cells may differ in size is resolved again when the size changes.
    pub fn resolve(&mut self, fields: &[usize], specs: &[ColumnSpec]) -> Result<()> {
        let mut columns = Vec::with_capacity(fields.len());
        for (field, spec) in fields.iter().zip(specs) {
            let field = &self.fields[*field];
            field.check(spec, self.steps.column(&field.path).map(|column| self.steps.spec(column)))?;
            if field.stored {
                columns.push(ColumnSpec { path: field.path.clone(), ..spec.clone() });
            }
        }
        let structure = Structure::List(vec![Structure::Leaf; columns.len()]);
        let mut columns = self.steps.resolve(&Schema { columns, structure })?.into_iter();
        for (field, spec) in fields.iter().zip(specs) {
            let field = &mut self.fields[*field];
            field.spec = Some(spec.clone());
            if field.stored {
                field.column = columns.next().expect("a column for every field that is stored");
            }
        }
        Ok(())
    }

    /// Appends a value to each of `fields`, which were resolved; returns the items that are complete with it.
    ///
    /// With `partial` the step stays open for more. If a field has its value already, or an error for a priority is not
    /// finite, the call fails and nothing is written.
    pub fn append(&mut self, fields: &[usize], cells: &[ColumnCells<'_>], partial: bool) -> Result<CreatedItems> {
        let mut columns: SmallVec<[usize; 8]> = SmallVec::with_capacity(fields.len());
        let mut stored: SmallVec<[ColumnCells<'_>; 8]> = SmallVec::with_capacity(fields.len());
        let mut errors: SmallVec<[Option<f64>; 8]> = SmallVec::with_capacity(fields.len());
        for (field, cells) in fields.iter().zip(cells) {
            let field = &self.fields[*field];
            if field.last == Some(self.step) {
                return Err(Error::InvalidArgument(format!("column '{}' was given twice in one step", field.path)));
            }
            field.check_width(cells)?;
            errors.push(field.error_of(cells)?);
            if field.stored {
                columns.push(field.column);
                stored.push(*cells);
            }
        }
        self.steps.append(&columns, &stored, partial)?;
        for ((field, cells), error) in fields.iter().zip(cells).zip(errors) {
            self.fields[*field].note(self.step, cells, error);
        }
        let makes = self.apply(self.step, false);
        self.step += u64::from(!partial);
        makes
    }

    /// Ends the step and the episode; returns the items that are complete with that.
    ///
    /// With `clear_buffers` no later item has cells from before.
    pub fn end_episode(&mut self, clear_buffers: bool) -> Result<CreatedItems> {
        let open = u64::from(self.steps.step_is_open());
        // An episode without steps ends without items.
        let makes = match (self.step + open).checked_sub(1) {
            Some(latest) if latest >= self.episode => self.apply(latest, true)?,
            _ => CreatedItems::new(),
        };
        self.steps.end_episode(clear_buffers);
        self.step += open;
        self.episode = self.step;
        if clear_buffers {
            self.fields.iter_mut().for_each(ConfigField::forget);
        }
        Ok(makes)
    }

    /// True between a partial append and the end of its step.
    pub fn step_is_open(&self) -> bool {
        self.steps.step_is_open()
    }

    /// The items of the configs that apply at this step and have not applied at it yet.
    fn apply(&mut self, step: u64, ending: bool) -> Result<CreatedItems> {
        let Self { steps, fields, programs, episode, .. } = self;
        let mut makes = CreatedItems::new();
        for (index, program) in programs.iter_mut().enumerate() {
            if !program.applies(fields, steps, step, *episode, ending) {
                continue;
            }
            if program.form.is_none() {
                program.form = Some(program.form(fields, steps)?);
            }
            let form = program.form.as_ref().expect("the form was just made");
            let (item, bytes) = (steps.item_of(form, step), steps.bytes_of(form));
            makes.push(CreatedItem { config: index, item, priority: program.priority(fields, step), bytes });
            program.applied = step as i64;
        }
        Ok(makes)
    }
}

impl Program {
    #[inline]
    fn applies(&self, fields: &[ConfigField], steps: &StepWriter, step: u64, episode: u64, ending: bool) -> bool {
        let since = step as i64 - self.applied;
        let holds = |condition: &StepCondition| match *condition {
            StepCondition::EndsEpisode => ending,
            StepCondition::Compare { quantity, modulo, relation, number } => {
                let value = match quantity {
                    Quantity::StepIndex => Some(i128::from(step - episode)),
                    Quantity::StepsSinceApplied => Some(i128::from(since)),
                    Quantity::Data(field) => fields[field].value_at(step),
                };
                value.is_some_and(|value| StepCondition::holds(modulo, relation, number, value))
            }
        };
        let mut nodes = self.config.nodes.iter().zip(&self.needs);
        since != 0
            && self.config.conditions.iter().all(holds)
            && nodes.all(|(node, needs)| fields[node.field].has(needs, &node.cells, steps, step))
    }

    fn form(&self, fields: &[ConfigField], steps: &mut StepWriter) -> Result<ItemForm> {
        let column = |node: &ConfigNode| ItemColumn {
            column: fields[node.field].column,
            start: 0,
            cells: node.cells.clone(),
            squeeze: node.squeeze,
        };
        steps.form(&self.config.structure, &self.config.nodes.iter().map(column).collect::<Vec<_>>())
    }

    fn priority(&self, fields: &[ConfigField], step: u64) -> Priority {
        match self.config.rule {
            PriorityRule::Constant(priority) => Priority::Value(priority),
            PriorityRule::TdError { max_weight, field } => {
                let node = self.config.nodes.iter().find(|node| node.field == field);
                let cells = &node.expect("the config was checked").cells;
                Priority::Value(fields[field].priority(cells, step, max_weight))
            }
        }
    }
}
