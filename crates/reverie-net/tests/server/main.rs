//! The server, through a client that knows nothing but the proto.

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
mod strangers;
