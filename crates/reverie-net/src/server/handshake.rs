//! The first messages of a connection: its greeting, the proof of the token, and its session.

use super::clients::ClientFigures;
use super::session::{Session, SessionIdentity};
use super::shared::{OpenSession, ServerState, SessionId};
use crate::admission::AdmissionGuard;
use crate::convert;
use crate::proto::client_message::Body as ClientBody;
use crate::proto::error_detail::Kind;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientHello, ClientMessage, ErrorDetail, PROTOCOL, ServerMessage};
use crate::token::{self, Exchange, NONCE_BYTES, Prover, Token};
use crate::transport::server::ServerConnection;
use reverie_core::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The time for which a new connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

impl ServerState {
    /// Reads a connection's hello and passes the connection to its session.
    /// If the hello does not arrive or is refused, the client gets the reason and the connection is closed. Done when
    /// the session has the connection.
    pub async fn handshake(self: Arc<Self>, mut connection: Box<dyn ServerConnection>) {
        let admission = connection.admission();
        let session = tokio::select! {
            session = tokio::time::timeout(PATIENCE, self.read_hello(&mut *connection)) => session,
            () = self.stopping() => Ok(Err(SessionRefusal::from(Error::Unavailable("the server stops".to_owned())))),
            why = must_close(admission.as_deref()) => Ok(Err(SessionRefusal::from(Error::Unavailable(why.to_owned())))),
        };
        let refusal = match session {
            Ok(Ok(id)) => match self.attach(id, connection) {
                Ok(()) => return,
                Err((error, back)) => {
                    connection = back;
                    convert::error::encode(&error)
                }
            },
            Ok(Err(SessionRefusal::ConnectionLost)) => return connection.close(),
            Ok(Err(SessionRefusal::Refused(refusal))) => refusal,
            Err(_) => {
                convert::error::encode(&Error::Protocol(format!("no hello arrived within {} s", PATIENCE.as_secs())))
            }
        };
        self.refuse(connection, refusal);
    }

    /// Passes a connection to its session, which is created if it does not exist.
    /// `Unavailable`: too many sessions, or the server stops.
    fn attach(
        self: &Arc<Self>,
        id: SessionId,
        connection: Box<dyn ServerConnection>,
    ) -> Result<(), (Error, Box<dyn ServerConnection>)> {
        let mut sessions = self.sessions();
        let mut connection = connection;
        if let Some(known) = sessions.get(&id) {
            match known.connections.try_send(connection) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => {
                    return Err((Error::Unavailable("the session reconnects too often".to_owned()), back));
                }
                // The session ended just now.
                Err(TrySendError::Closed(back)) => connection = back,
            }
        }
        if self.is_stopping() {
            return Err((Error::Unavailable("the server stops".to_owned()), connection));
        }
        // Twice the connections of both transports: as many again may be remembered.
        let most = self.limits.max_connections.saturating_mul(4);
        if sessions.len() >= most {
            let why = format!(
                "the server is full: it has {most} sessions, including those of clients that may reconnect; start it \
                 with a larger max_connections= (reverie serve --max-connections)"
            );
            return Err((Error::Unavailable(why), connection));
        }
        let (sender, connections) = mpsc::channel(4);
        let figures = Arc::new(ClientFigures::new());
        sessions.insert(id, OpenSession { connections: sender, figures: Arc::clone(&figures) });
        let named = SessionIdentity { id, arrivals: connections, figures };
        let arrivals = self.returned(&id, &sessions);
        drop(sessions);
        let leases = self.tables.claim_leases(&id);
        let forgot = self.tables.forgotten().has(&id);
        tokio::spawn(Session::new(self, Some(named), forgot, arrivals, leases).run(Some(connection)));
        Ok(())
    }

    /// Serves a connection of one message, without a hello and without a name.
    pub fn call(self: &Arc<Self>, connection: Box<dyn ServerConnection>) {
        tokio::spawn(Session::new(self, None, false, Vec::new(), Vec::new()).run(Some(connection)));
    }

    /// The connection's session. The connection has a place when this returns.
    async fn read_hello(&self, connection: &mut dyn ServerConnection) -> Result<SessionId, SessionRefusal> {
        let Some(ClientBody::Hello(ClientHello { protocol, session, nonce, .. })) = receive(connection).await?.body
        else {
            return Err(Error::Protocol("the first message must be a hello".to_owned()).into());
        };
        if protocol != PROTOCOL {
            let reason = format!("the client speaks version {protocol} of the protocol, the server version {PROTOCOL}");
            return Err(SessionRefusal::Refused(Kind::Incompatible(reason).into()));
        }
        let len = session.len();
        let wrong = |_| Error::Protocol(format!("a session's name has {len} bytes; it must have 16"));
        let session: SessionId = session.try_into().map_err(wrong)?;
        if let (Some(token), false) = (&self.token, connection.authenticated()) {
            challenge(connection, token, &session, &nonce).await?;
        }
        if let Some(admission) = connection.admission() {
            admission.mark_authenticated();
            admission.admit()?;
        }
        connection.admitted();
        Ok(session)
    }

    fn refuse(&self, mut connection: Box<dyn ServerConnection>, reason: ErrorDetail) {
        if let Some(more) = self.refusals.allows() {
            let why = convert::error::decode(reason.clone());
            tracing::warn!("{} was refused: {why}{more}", connection.peer());
        }
        let goodbye = proto::Goodbye { reason: Some(reason), stopping: false };
        connection.send(ServerMessage { body: Some(Body::Goodbye(goodbye)) });
        connection.close();
    }
}

/// Proves that this end has the token, and asks the same of the other end. The token itself is never sent.
async fn challenge(
    connection: &mut dyn ServerConnection,
    token: &Token,
    session: &SessionId,
    theirs: &[u8],
) -> Result<(), SessionRefusal> {
    let wrong = |_| Error::Protocol(format!("a nonce has {} bytes; it must have {NONCE_BYTES}", theirs.len()));
    let client_nonce: &[u8; NONCE_BYTES] = theirs.try_into().map_err(wrong)?;
    let server_nonce = token::nonce()?;
    let exchange = Exchange { session, client_nonce, server_nonce: &server_nonce };
    let proof = token.proof(Prover::Server, &exchange);
    let challenge = proto::Challenge { nonce: server_nonce.to_vec(), proof };
    connection.send(ServerMessage { body: Some(Body::Challenge(challenge)) });
    let Some(ClientBody::Proof(proto::Proof { proof })) = receive(connection).await?.body else {
        return Err(Error::Unauthenticated(token::wrong(false)).into());
    };
    match token.is_proven(Prover::Client, &exchange, &proof) {
        true => Ok(()),
        false => Err(Error::Unauthenticated(token::wrong(true)).into()),
    }
}

async fn receive(connection: &mut dyn ServerConnection) -> Result<ClientMessage, SessionRefusal> {
    match std::future::poll_fn(|context| connection.poll_receive(context)).await {
        Some(message) => Ok(message?),
        None => Err(SessionRefusal::ConnectionLost),
    }
}

/// Pending forever for a connection that is admitted already.
async fn must_close(admission: Option<&AdmissionGuard>) -> &'static str {
    match admission {
        Some(admission) => admission.must_close().await,
        None => std::future::pending().await,
    }
}

/// The reason why a connection gets no session.
enum SessionRefusal {
    ConnectionLost,
    Refused(ErrorDetail),
}

impl From<Error> for SessionRefusal {
    fn from(error: Error) -> Self {
        Self::Refused(convert::error::encode(&error))
    }
}
