//! The transport on one host: a Unix socket for messages, shared memory for bytes.
//!
//! Messages are framed by [`socket`]. The server gathers batches into `slots`, and the client reads them in place
//! (`mapped`); bulk bytes of inserts go through a `ring`. Everything belongs to one connection and ends with it,
//! however it ends: the system closes the descriptors of a dead process, and unmaps its mappings.

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
pub use server::{Listener, LocalServerConnection, serve};

/// The peer's process id if it runs as our user or as root; otherwise the reason why it is not trusted.
fn trusted(stream: &tokio::net::UnixStream) -> Result<i32, String> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|error| error.to_string())?;
    let (theirs, ours) = (peer.uid.as_raw(), rustix::process::geteuid().as_raw());
    if is_trusted(theirs, ours) {
        return Ok(peer.pid.as_raw_nonzero().get());
    }
    Err(format!("its process belongs to user {theirs}, and this one to user {ours}"))
}

/// A peer that runs as root is trusted, as root can do what our user can; root trusts only root.
fn is_trusted(theirs: u32, ours: u32) -> bool {
    theirs == ours || theirs == 0
}
