//! The same host: a Unix socket for messages, shared memory for bytes.
//!
//! Messages are framed by [`socket`]. Batches are gathered by the server into `slots` and read in place by the client
//! (`mapped`); bulk bytes of inserts go through a `ring`. Everything belongs to one connection and ends with it, however
//! it ends: the system closes the descriptors of a process that dies, and unmaps what it had mapped.

mod client;
mod directory;
mod mapped;
mod ring;
mod server;
mod slots;
mod socket;
#[cfg(test)]
mod tests;

pub use client::{LocalInlet, LocalOutlet, connect};
pub use server::{Listener, LocalWay, serve};

/// The peer's process number, where it is of our user or root's; otherwise why it is not trusted.
fn trusted(stream: &tokio::net::UnixStream) -> Result<i32, String> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|error| error.to_string())?;
    let (theirs, ours) = (peer.uid.as_raw(), rustix::process::geteuid().as_raw());
    if may_be_trusted(theirs, ours) {
        return Ok(peer.pid.as_raw_nonzero().get());
    }
    Err(format!("its process is of the user {theirs}, ours of {ours}"))
}

/// Root can do what our user can; our user cannot do what root can, which would make others' sockets root's business.
fn may_be_trusted(theirs: u32, ours: u32) -> bool {
    theirs == ours || theirs == 0
}
