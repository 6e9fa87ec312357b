//! Core types and requests as messages, and back.

mod refused;
mod requests;
mod types;
