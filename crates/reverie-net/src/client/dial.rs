//! Making a connection: the choice of transport, and the greeting.

use super::incoming::goodbye_error;
use crate::endpoint::{EndpointOptions, Transport};
use crate::grpc::client::{Dialer, GrpcInlet, GrpcOutlet};
use crate::grpc::connector::Connector;
use crate::local::{self, LocalInlet, LocalOutlet};
use crate::proto::client_message::Body as ClientBody;
use crate::proto::server_message::Body;
use crate::proto::{self, PROTOCOL};
use crate::token::{self, Exchange, NONCE_BYTES, Prover, Token};
use crate::transport::Traffic;
use crate::transport::client::{Inlet, Outlet};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time that one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Everything that is needed to connect.
pub(super) struct SessionDialer {
    dialer: Dialer,
    transport: Transport,
    token: Option<Token>,
    address: String,
    attempt: Duration,
    session: [u8; 16],
    traffic: Arc<Traffic>,
}

/// The two halves of a connection, by transport.
#[allow(clippy::large_enum_variant)] // One for each connection.
pub(super) enum ConnectionHalves {
    Grpc(GrpcOutlet, GrpcInlet),
    Local(LocalOutlet, LocalInlet),
}

/// A connection whose greeting is complete.
pub(super) struct EstablishedConnection {
    pub(super) halves: ConnectionHalves,
    pub(super) hello: proto::ServerHello,
    pub(super) description: proto::Description,
    /// The reason why this transport was chosen.
    pub(super) reason: String,
    /// The time until the first question was answered.
    pub(super) round_trip: Duration,
}

impl SessionDialer {
    /// Checks the options. `session` must be unique.
    pub(super) fn new(
        options: &EndpointOptions,
        connector: Arc<dyn Connector>,
        traffic: Arc<Traffic>,
        session: [u8; 16],
    ) -> Result<Self> {
        let dialer = Dialer::new(options, connector, Arc::clone(&traffic))?;
        if options.patience.is_zero() {
            return Err(Error::InvalidArgument("patience must be more than 0 seconds".to_owned()));
        }
        Ok(Self {
            dialer,
            transport: options.transport,
            token: options.token.as_deref().map(Token::new),
            address: options.address.clone(),
            attempt: options.patience.min(ATTEMPT),
            session,
            traffic,
        })
    }

    /// Makes a connection. `Unavailable` may be temporary; any other error is permanent.
    pub(super) async fn dial(&self, resume: bool) -> Result<EstablishedConnection> {
        match tokio::time::timeout(self.attempt, self.connect(resume)).await {
            Ok(dialed) => dialed,
            Err(_) => Err(Error::Unavailable(format!("{} did not answer within {:?}", self.address, self.attempt))),
        }
    }

    async fn connect(&self, resume: bool) -> Result<EstablishedConnection> {
        let mut connection = self.dialer.dial().await?;
        let started = Instant::now();
        let description = connection.describe().await?;
        let round_trip = started.elapsed();
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
                    return Ok(EstablishedConnection { halves, hello, description, reason, round_trip });
                }
                Err(error) if self.transport == Transport::SharedMemory => return Err(self.shared_memory_error(error)),
                Err(why) => why.to_string(),
            },
        };
        if self.transport == Transport::Auto {
            reason = format!("shared memory is not available: {reason}");
        }
        let (mut sending, mut receiving) = connection.session(self.hello(resume, Vec::new())).await?;
        let hello = self.server_hello(send_and_receive(&mut sending, &mut receiving, None).await?)?;
        Ok(EstablishedConnection {
            halves: ConnectionHalves::Grpc(sending, receiving),
            hello,
            description,
            reason,
            round_trip,
        })
    }

    /// Connects through shared memory. `Unavailable` may be temporary, as while a server restarts.
    async fn local(
        &self,
        description: &proto::Description,
        resume: bool,
    ) -> Result<(ConnectionHalves, proto::ServerHello)> {
        let (mut outlet, mut inlet) = local::connect(&description.local_socket, &self.traffic).await?;
        let nonce = token::nonce()?;
        let hello = ClientBody::Hello(self.hello(resume, nonce.to_vec()));
        let reply = match send_and_receive(&mut outlet, &mut inlet, Some(hello)).await? {
            Some(Body::Challenge(challenge)) => {
                let proof = self.prove(&nonce, challenge, &description.local_socket)?;
                send_and_receive(&mut outlet, &mut inlet, Some(ClientBody::Proof(proof))).await?
            }
            Some(Body::Hello(_)) if description.wants_token && self.token.is_some() => {
                return Err(unauthenticated_server(&description.local_socket));
            }
            reply => reply,
        };
        let hello = self.server_hello(reply)?;
        if hello.incarnation != description.incarnation {
            let reason = "the Unix socket of that name on this host belongs to another server";
            return Err(Error::Unavailable(reason.to_owned()));
        }
        Ok((ConnectionHalves::Local(outlet, inlet), hello))
    }

    /// The error for a client that accepts shared memory only.
    fn shared_memory_error(&self, error: Error) -> Error {
        let with_advice = |why: String| {
            let address = &self.address;
            format!(
                "shared memory is not available for {address}: {why}; use transport='auto', which falls back to gRPC"
            )
        };
        match error {
            Error::Unavailable(why) => Error::Unavailable(with_advice(why)),
            Error::InvalidArgument(why) => Error::InvalidArgument(with_advice(why)),
            error => error,
        }
    }

    /// The proof that this end has the token, made only after the other end has proven it.
    fn prove(&self, client_nonce: &[u8; NONCE_BYTES], challenge: proto::Challenge, path: &str) -> Result<proto::Proof> {
        let token = self.token.as_ref().ok_or_else(|| Error::Unauthenticated(token::wrong(false)))?;
        let server_nonce = challenge.nonce.as_slice().try_into().map_err(|_| unauthenticated_server(path))?;
        let exchange = Exchange { session: &self.session, client_nonce, server_nonce };
        match token.is_proven(Prover::Server, &exchange, &challenge.proof) {
            true => Ok(proto::Proof { proof: token.proof(Prover::Client, &exchange) }),
            false => Err(unauthenticated_server(path)),
        }
    }

    /// The server's hello, or the reason why there is none.
    fn server_hello(&self, reply: Option<Body>) -> Result<proto::ServerHello> {
        let address = &self.address;
        match reply {
            Some(Body::Hello(hello)) => Ok(hello),
            Some(Body::Goodbye(goodbye)) => Err(goodbye_error(address, goodbye)),
            Some(_) => Err(Error::Protocol(format!("{address} sent no hello"))),
            None => Err(Error::Unavailable(format!("{address} closed the connection before its hello"))),
        }
    }

    fn hello(&self, resume: bool, nonce: Vec<u8>) -> proto::ClientHello {
        proto::ClientHello {
            protocol: PROTOCOL,
            session: self.session.to_vec(),
            resume,
            name: format!("process {}", std::process::id()),
            nonce,
        }
    }
}

/// The error for a process that listens in the server's place without knowing the token. It learns nothing.
fn unauthenticated_server(path: &str) -> Error {
    Error::Unauthenticated(format!("the process that listens on {path} did not prove that it knows the token"))
}

/// Sends the message if there is one, and waits for the reply. `None` if the server closes the connection.
async fn send_and_receive<O: Outlet, I: Inlet>(
    outlet: &mut O,
    inlet: &mut I,
    message: Option<ClientBody>,
) -> Result<Option<Body>> {
    if let Some(body) = message {
        outlet.ready(0).await?;
        outlet.send(proto::ClientMessage { body: Some(body), ..Default::default() })?;
    }
    let arrived = loop {
        tokio::select! {
            biased;
            arrived = inlet.receive() => break arrived?,
            ready = outlet.ready(0), if outlet.is_pressed() => ready?,
        }
    };
    Ok(arrived.and_then(|arrived| arrived.message.body))
}
