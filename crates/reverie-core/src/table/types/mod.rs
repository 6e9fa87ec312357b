//! What a table is told, and what it tells: data.
//!
//! In here: options, keys, priorities, requests, answers, figures. Not in here: decisions (they are in `policy`), a
//! lock, a queue or a clock (they are in `waiting`).

pub(super) mod info;
