//! Several servers as one replay.

mod faults;
mod flow;
mod limits;
mod model;
mod restarts;
mod storm;
mod support;
