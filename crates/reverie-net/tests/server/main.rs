//! The server, through a client that uses only the proto.

#[path = "../support/full_journal.rs"]
mod full_journal;
mod support;

mod access;
mod bounds;
mod calls;
mod commits;
mod frames;
mod hostile;
mod inserts;
mod kept;
mod leases;
mod limits;
mod memory;
mod resume;
mod samples;
mod unauthenticated;
