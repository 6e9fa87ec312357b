//! How a connection is made: which way, and with which greeting.

use super::engine::farewell;
use super::way::{Inlet, Outlet};
use super::{Options, Transport};
use crate::grpc::client::{Dialer, Receiving, Sending};
use crate::grpc::connector::{Connect, Traffic};
use crate::local::{self, LocalInlet, LocalOutlet};
use crate::proto::client_message::Body as Asked;
use crate::proto::server_message::Body;
use crate::proto::{self, PROTOCOL};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// For how long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Everything that connecting takes.
pub(super) struct Dial {
    dialer: Dialer,
    transport: Transport,
    token: Option<String>,
    address: String,
    attempt: Duration,
    session: [u8; 16],
    traffic: Arc<Traffic>,
}

/// The two halves of a connection, by the way that it travels.
pub(super) enum Halves {
    Grpc(Sending, Receiving),
    Local(LocalOutlet, LocalInlet),
}

/// A connection that was greeted.
pub(super) struct Dialed {
    pub(super) halves: Halves,
    pub(super) hello: proto::ServerHello,
    pub(super) description: proto::Description,
    /// Why this way.
    pub(super) reason: String,
}

impl Dial {
    /// Checks the options. `session` must be unlike any other.
    pub(super) fn new(
        options: &Options,
        connect: Arc<dyn Connect>,
        traffic: Arc<Traffic>,
        session: [u8; 16],
    ) -> Result<Self> {
        let dialer = Dialer::new(options, connect, Arc::clone(&traffic))?;
        if options.patience.is_zero() {
            return Err(Error::InvalidArgument("the patience with a server must be more than 0 s".to_owned()));
        }
        Ok(Self {
            dialer,
            transport: options.transport,
            token: options.token.clone(),
            address: options.address.clone(),
            attempt: options.patience.min(ATTEMPT),
            session,
            traffic,
        })
    }

    /// Makes a connection. `Unavailable` may pass; any other error will not.
    pub(super) async fn dial(&self, resume: bool) -> Result<Dialed> {
        match tokio::time::timeout(self.attempt, self.connect(resume)).await {
            Ok(dialed) => dialed,
            Err(_) => Err(Error::Unavailable(format!("{} did not answer within {:?}", self.address, self.attempt))),
        }
    }

    async fn connect(&self, resume: bool) -> Result<Dialed> {
        let mut line = self.dialer.dial().await?;
        let description = line.describe().await?;
        if description.protocol != PROTOCOL {
            return Err(Error::Protocol(format!(
                "{} speaks version {} of the protocol (package {}), this client version {PROTOCOL}: install the same \
                 release at both ends",
                self.address, description.protocol, description.version
            )));
        }
        let mut reason = match self.transport {
            Transport::Grpc => "transport='grpc' was asked for".to_owned(),
            Transport::Auto | Transport::SharedMemory => match self.local(&description, resume).await {
                Ok((halves, hello)) => {
                    let reason = "the server is on this host".to_owned();
                    return Ok(Dialed { halves, hello, description, reason });
                }
                Err(why) => why,
            },
        };
        if self.transport == Transport::SharedMemory {
            return Err(Error::InvalidArgument(format!(
                "transport='shared-memory' cannot be had with {}: {reason}; transport='auto' would go over gRPC",
                self.address
            )));
        }
        if self.transport == Transport::Auto {
            reason = format!("shared memory cannot be had: {reason}");
        }
        let (mut sending, mut receiving) = line.session(self.hello(resume)).await?;
        let hello = greet(&mut sending, &mut receiving, None, &self.address).await?;
        Ok(Dialed { halves: Halves::Grpc(sending, receiving), hello, description, reason })
    }

    /// The way through shared memory, or why there is none.
    async fn local(
        &self,
        description: &proto::Description,
        resume: bool,
    ) -> Result<(Halves, proto::ServerHello), String> {
        if description.local_socket.is_empty() {
            return Err("the server has no Unix socket".to_owned());
        }
        let connected = local::connect(&description.local_socket, &self.traffic).await;
        let (mut outlet, mut inlet) = connected.map_err(|error| error.to_string())?;
        let hello = Some(Asked::Hello(self.hello(resume)));
        let hello = Some(proto::ClientMessage { body: hello, ..Default::default() });
        let greeted = greet(&mut outlet, &mut inlet, hello, &self.address).await;
        let hello = greeted.map_err(|error| error.to_string())?;
        if hello.incarnation != description.incarnation {
            return Err("the Unix socket of that name on this host is another server's".to_owned());
        }
        Ok((Halves::Local(outlet, inlet), hello))
    }

    fn hello(&self, resume: bool) -> proto::ClientHello {
        proto::ClientHello {
            protocol: PROTOCOL,
            session: self.session.to_vec(),
            resume,
            name: format!("process {}", std::process::id()),
            token: self.token.clone().unwrap_or_default(),
        }
    }
}

/// Waits for the server's hello, after sending ours where the way has not done so.
async fn greet<O: Outlet, I: Inlet>(
    outlet: &mut O,
    inlet: &mut I,
    hello: Option<proto::ClientMessage>,
    address: &str,
) -> Result<proto::ServerHello> {
    if let Some(hello) = hello {
        outlet.ready(0).await?;
        outlet.send(hello)?;
    }
    let arrived = loop {
        tokio::select! {
            biased;
            arrived = inlet.receive() => break arrived?,
            ready = outlet.ready(0), if outlet.is_pressed() => ready?,
        }
    };
    match arrived.and_then(|arrived| arrived.message.body) {
        Some(Body::Hello(hello)) => Ok(hello),
        Some(Body::Goodbye(goodbye)) => Err(farewell(address, goodbye)),
        Some(_) => Err(Error::Protocol(format!("{address} did not greet"))),
        None => Err(Error::Unavailable(format!("{address} closed the connection before it greeted"))),
    }
}
