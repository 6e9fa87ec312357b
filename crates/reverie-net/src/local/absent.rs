//! In place of the transport on one host, on a system that is not Linux: there is none, and the reason is given.

use crate::bulk::BulkSink;
use crate::proto::ClientMessage;
use crate::server::{Limits, ServerState};
use crate::transport::Traffic;
use crate::transport::client::{ArrivedMessage, Inlet, Outlet};
use reverie_core::{Error, Result};
use std::convert::Infallible;
use std::sync::Arc;

/// The sending half, of which there is none.
pub struct LocalOutlet(Infallible);

/// The receiving half, of which there is none.
pub struct LocalInlet(Infallible);

/// The listening socket, of which there is none.
pub struct Listener(Infallible);

fn absent() -> Error {
    Error::InvalidArgument(format!("shared memory needs Linux, and this system is {}", std::env::consts::OS))
}

/// Always `InvalidArgument`.
pub async fn connect(_path: &str, _traffic: &Arc<Traffic>) -> Result<(LocalOutlet, LocalInlet)> {
    Err(absent())
}

/// Cannot be called.
pub async fn serve(listener: Listener, _shared: Arc<ServerState>) {
    match listener.0 {}
}

impl Listener {
    /// Always `InvalidArgument`.
    pub fn bind(_port: u16, _limits: &Limits) -> Result<Self> {
        Err(absent())
    }

    /// The socket's path.
    pub fn path(&self) -> &str {
        match self.0 {}
    }
}

impl Outlet for LocalOutlet {
    const TRANSPORT: &'static str = "shared-memory";
    const MESSAGE_BYTES: u64 = 0;

    async fn ready(&mut self, _bulk_bytes: u64) -> Result<()> {
        match self.0 {}
    }

    fn bulk(&mut self) -> &mut dyn BulkSink {
        match self.0 {}
    }

    fn send(&mut self, _message: ClientMessage) -> Result<()> {
        match self.0 {}
    }
}

impl Inlet for LocalInlet {
    async fn receive(&mut self) -> Result<Option<ArrivedMessage>> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shared_memory_is_refused_with_the_reason() {
        let server = Listener::bind(1, &Limits::default()).map(drop).unwrap_err();
        let client = connect("/run/reverie/1", &Arc::default()).await.map(drop).unwrap_err();
        for refused in [server, client] {
            let Error::InvalidArgument(why) = refused else { panic!("{refused}") };
            assert_eq!(why, format!("shared memory needs Linux, and this system is {}", std::env::consts::OS));
        }
    }
}
