//! Conditions on what a table knows of its items: which items, and in which order.

/// Conditions of one request at most.
pub const MAX_CONDITIONS: usize = 64;

/// What a table knows of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// As it was given.
    Priority,
    /// Draws.
    TimesSampled,
    /// Updates of the priority.
    Version,
    /// Seconds since the item was inserted.
    Age,
}

/// How a field is compared with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

/// A condition on one item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub field: Field,
    /// How.
    pub comparison: Comparison,
    /// With what; not NaN.
    pub value: f64,
}

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// All of them must hold.
    pub conditions: Vec<Condition>,
    /// Items at most, the first in the order.
    pub limit: Option<usize>,
    /// The field to sort by, and whether the largest comes first; `None`: the order of insertion, which also decides
    /// between equals.
    pub order: Option<(Field, bool)>,
}
