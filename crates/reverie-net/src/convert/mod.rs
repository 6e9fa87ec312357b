//! Between the core's types and the messages. What comes from a message is checked: it may be anything.

pub mod error;
pub mod item;
pub mod structure;
pub mod table;
