//! The first message of a connection: who it is, and which session it belongs to.

use super::session::Session;
use super::shared::{SessionId, Shared};
use crate::convert;
use crate::proto::client_message::Body as Asked;
use crate::proto::error_detail::Kind;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientHello, ClientMessage, ErrorDetail, PROTOCOL, ServerMessage};
use crate::way::server::Way;
use reverie_core::Error;
use std::sync::Arc;
use std::time::Duration;

/// For how long a new connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// Reads a connection's hello and brings it to its session. A connection whose hello does not come or is refused
    /// is told why, and ended. Done when the session has the connection.
    pub async fn welcome(self: Arc<Self>, mut way: Box<dyn Way>) {
        let hello = std::future::poll_fn(|context| way.poll_receive(context));
        let message = tokio::select! {
            message = tokio::time::timeout(PATIENCE, hello) => message,
            () = self.stopping() => return refuse(way, Error::Unavailable("the server stops".to_owned()).into()),
        };
        let refused = match message {
            Ok(None) => return way.close(),
            Ok(Some(Ok(message))) => match self.check_hello(message, way.authenticated()) {
                Ok(id) => match self.attach(id, way) {
                    Ok(()) => return,
                    Err((error, back)) => {
                        way = back;
                        error.into()
                    }
                },
                Err(refused) => refused,
            },
            Ok(Some(Err(error))) => error.into(),
            Err(_) => Error::Protocol(format!("no hello within {} s", PATIENCE.as_secs())).into(),
        };
        refuse(way, refused);
    }

    /// Ends a connection that is one too many.
    pub fn turn_away(&self, way: Box<dyn Way>) {
        let most = self.limits.max_connections;
        refuse(way, Error::Unavailable(format!("the server has {most} connections, and takes no more")).into());
    }

    /// Serves a connection of one message, without a hello and without a name.
    pub fn call(self: &Arc<Self>, way: Box<dyn Way>) {
        tokio::spawn(Session::new(self, None, false, Vec::new()).run(Some(way)));
    }

    fn check_hello(&self, message: ClientMessage, authenticated: bool) -> Result<SessionId, Refusal> {
        let Some(Asked::Hello(ClientHello { protocol, session, token, .. })) = message.body else {
            return Err(Error::Protocol("the first message must be a hello".to_owned()).into());
        };
        if protocol != PROTOCOL {
            let reason = format!("the client speaks version {protocol} of the protocol, the server version {PROTOCOL}");
            return Err(Refusal(ErrorDetail { kind: Some(Kind::Incompatible(reason)) }));
        }
        if !authenticated && !self.admits(Some(token.as_bytes())) {
            return Err(Error::Unauthenticated(crate::token::wrong(!token.is_empty())).into());
        }
        let len = session.len();
        session.try_into().map_err(|_| Error::Protocol(format!("a session's name of {len} bytes, not 16")).into())
    }
}

struct Refusal(ErrorDetail);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(convert::error::encode(&error))
    }
}

fn refuse(mut way: Box<dyn Way>, Refusal(reason): Refusal) {
    tracing::warn!("{} is refused, and told: {}", way.peer(), convert::error::decode(reason.clone()));
    let goodbye = proto::Goodbye { reason: Some(reason), stopping: false };
    way.send(ServerMessage { body: Some(Body::Goodbye(goodbye)) });
    way.close();
}
