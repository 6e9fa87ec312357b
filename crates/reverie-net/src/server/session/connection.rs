//! A session's connections: each replaces the one before.

use super::Session;
use crate::convert;
use crate::items::{self, Decoder};
use crate::proto::server_message::Body;
use crate::proto::{self, PROTOCOL, ServerMessage};
use crate::server::delivery::Link;
use crate::server::latencies::RequestTransport;
use crate::transport::server::ServerConnection;
use reverie_core::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Starts a connection of the session: the first, or one that replaces a lost one.
    pub(super) fn connect(&mut self, mut connection: Box<dyn ServerConnection>) {
        let resumed = self.link.is_some() || self.forget.is_some();
        self.handle_disconnect();
        self.connection += 1;
        self.forget = None;
        self.inserts.reconnected();
        if self.id.is_some() {
            let hello = proto::ServerHello {
                protocol: PROTOCOL,
                incarnation: self.shared.incarnation(),
                resumed,
                insert_credit_bytes: self.credit.granted(),
                forgot: self.forgot,
                durable_later: self.shared.tables.is_durable_later(),
                commit_grace_ms: self.shared.tables.commit_grace().as_millis() as u32,
            };
            // Before what this session sends ahead of batches.
            connection.send_ahead(ServerMessage { body: Some(Body::Hello(hello)) });
        }
        self.shared.counter(connection.transport()).fetch_add(1, Ordering::Relaxed);
        self.figures.connected(RequestTransport::of(connection.transport()), connection.peer());
        let meter = Arc::clone(self.shared.tables.bytes().0);
        let mut decoder = Decoder::new(meter, items::DecoderLimits::default(), Arc::clone(&self.episodes));
        decoder.adopt(std::mem::take(&mut self.released));
        self.link = Some(Link::new(connection, decoder));
        self.notify_held();
    }

    /// Handles the loss of the connection: waiting work continues, and unsent answers wait until the client asks again.
    pub(super) fn handle_disconnect(&mut self) {
        let Some(link) = self.link.take() else { return };
        self.shared.counter(link.connection.transport()).fetch_sub(1, Ordering::Relaxed);
        self.figures.lost();
        self.forget = Some(Box::pin(tokio::time::sleep(self.shared.limits.linger)));
        self.end_consuming();
        self.released = link.decoder.release();
        link.connection.close();
        // The incomplete message is gone.
        let _ = self.charge.receive(0);
    }

    pub(in crate::server) fn send_goodbye(&mut self, error: Error, stopping: bool) {
        if let Some(link) = &mut self.link {
            if let (false, Some(more)) = (stopping, self.shared.endings.allows()) {
                tracing::warn!(peer = link.connection.peer(), %error, "a connection is ended{more}");
            }
            let reason = Some(convert::error::encode(&error));
            let goodbye = proto::Goodbye { reason, stopping };
            link.connection.send(ServerMessage { body: Some(Body::Goodbye(goodbye)) });
        }
        self.handle_disconnect();
    }
}
