//! Core types and requests as messages, and back.

mod fuzz;
mod refused;
mod requests;
mod types;
