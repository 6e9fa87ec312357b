//! Several servers as one replay.

mod limits;
mod model;
mod support;
