//! The configuration of a structured writer: the items to create from its steps, and the conditions for them.

use crate::error::{Error, Result};
use crate::item::Cells;
use crate::spec::Structure;
use std::sync::Arc;

/// One column of the items of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNode {
    /// The field of the step, as numbered by [`StructuredWriter`](super::StructuredWriter).
    pub field: usize,
    /// The steps: 0 is the latest, -1 the one before.
    pub cells: Cells,
    /// True for one cell without a time axis.
    pub squeeze: bool,
}

/// A quantity that a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The latest step's place in its episode; the first is 0.
    StepIndex,
    /// Steps since the config's last item, the latest included; since the writer's start before the first item.
    StepsSinceApplied,
    /// The value of a field in the latest step. Without a value, no condition on it holds.
    Data(usize),
}

/// The comparison of a quantity with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A condition for a config to create an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCondition {
    /// The episode ends.
    EndsEpisode,
    /// A quantity, or the remainder of its division, compares with a number as given.
    Compare {
        /// The quantity.
        quantity: Quantity,
        /// If given, compares the remainder of a division by this number; it is never negative.
        modulo: Option<i64>,
        /// The comparison with `number`.
        relation: Relation,
        /// The number to compare with.
        number: i64,
    },
}

impl StepCondition {
    /// True if the condition holds for a quantity of this value.
    #[inline]
    pub(super) fn holds(modulo: Option<i64>, relation: Relation, number: i64, value: i128) -> bool {
        let value = modulo.map_or(value, |modulo| value.rem_euclid(i128::from(modulo)));
        let number = i128::from(number);
        match relation {
            Relation::Equal => value == number,
            Relation::NotEqual => value != number,
            Relation::Less => value < number,
            Relation::AtMost => value <= number,
            Relation::Greater => value > number,
            Relation::AtLeast => value >= number,
        }
    }
}

/// The source of the priorities of a config's items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PriorityRule {
    /// All items have this one.
    Constant(f64),
    /// `w * max |x| + (1 - w) * mean |x|` over the item's cells of one field.
    ///
    /// See Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed RL", section 2.3.
    TdError {
        /// `w`, within [0, 1].
        max_weight: f64,
        /// The field of x, which must occur exactly once in the pattern.
        field: usize,
    },
}

/// The most steps that a pattern may reach back: all of them are kept.
const MAX_STEPS_BACK: i64 = 1 << 20;

/// Items of one form for one table.
#[derive(Clone, Debug)]
pub struct Config {
    /// The table that they are inserted into.
    pub table: String,
    /// The structure that the columns fill.
    pub structure: Arc<Structure>,
    /// The columns in flattening order.
    pub nodes: Vec<ConfigNode>,
    /// All must hold.
    pub conditions: Vec<StepCondition>,
    /// The source of their priorities.
    pub rule: PriorityRule,
}

impl Config {
    /// Refuses an invalid config; `fields` are the paths of the step.
    pub(super) fn check(&self, fields: &[String]) -> Result<()> {
        let refuse = |why: String| {
            Err(Error::InvalidArgument(format!("the config for table '{}' cannot be used: {why}", self.table)))
        };
        if self.nodes.is_empty() || self.nodes.len() != self.structure.num_leaves() {
            return refuse("its pattern needs at least one column".to_owned());
        }
        let known = |field: usize| fields.get(field).is_some();
        for node in &self.nodes {
            if !known(node.field) {
                return refuse(format!("there is no field {} in a step of {}", node.field, fields.len()));
            }
            let (Some(first), Some(last)) = (node.cells.iter().min(), node.cells.iter().max()) else {
                return refuse(format!("column '{}' takes no steps", fields[node.field]));
            };
            if last > 0 || first <= -MAX_STEPS_BACK {
                let path = &fields[node.field];
                return refuse(format!("column '{path}' reaches beyond the latest {MAX_STEPS_BACK} steps"));
            }
        }
        for condition in &self.conditions {
            if let StepCondition::Compare { quantity: Quantity::Data(field), .. } = condition
                && !known(*field)
            {
                return refuse(format!("a condition is on field {field} in a step of {}", fields.len()));
            }
            if let StepCondition::Compare { modulo: Some(modulo), .. } = condition
                && *modulo < 1
            {
                return refuse(format!("a condition divides by {modulo}; it must be at least 1"));
            }
        }
        match self.rule {
            PriorityRule::TdError { max_weight, .. } if !(0.0..=1.0).contains(&max_weight) => {
                refuse(format!("max_priority_weight must be within [0, 1], got {max_weight}"))
            }
            PriorityRule::TdError { field, .. } => match self.nodes.iter().filter(|node| node.field == field).count() {
                1 => Ok(()),
                count => {
                    let path = fields.get(field).map_or("", |path| path);
                    refuse(format!(
                        "its priority is the td error in '{path}', which the pattern takes {count} times; it must take it once"
                    ))
                }
            },
            PriorityRule::Constant(_) => Ok(()),
        }
    }
}
