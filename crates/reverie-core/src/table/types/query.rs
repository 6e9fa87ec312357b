//! Queries: conditions on items, and the order of the result.

/// The largest number of conditions of one request.
pub const MAX_CONDITIONS: usize = 64;

/// A property of an item that a query can compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The priority as it was given.
    Priority,
    /// The number of draws.
    TimesSampled,
    /// The number of updates of the priority.
    Version,
    /// Seconds since the item was inserted.
    Age,
}

/// A comparison of a field with a number.
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
    /// The field.
    pub field: Field,
    /// The comparison.
    pub comparison: Comparison,
    /// The number to compare with; not NaN.
    pub value: f64,
}

/// A search for items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// All of them must hold.
    pub conditions: Vec<Condition>,
    /// The largest number of items to return, the first in the order.
    pub limit: Option<usize>,
    /// The field to sort by, and whether the largest comes first; `None` sorts by insertion.
    ///
    /// Ties are in the order of insertion.
    pub order: Option<(Field, bool)>,
}
