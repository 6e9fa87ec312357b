//! Log lines that clients can cause.

use super::{ScriptedConnection, connect_as, settle, shared};
use crate::proto::{ClientMessage, client_message::Body as ClientBody};
use crate::server::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the warnings of this thread.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, line: &tracing::Metadata<'_>) -> bool {
        *line.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn connections_that_break_a_rule_again_and_again_are_logged_sparingly() {
    let lines = Arc::new(AtomicUsize::new(0));
    let _logged = tracing::subscriber::set_default(Warnings(Arc::clone(&lines)));
    let shared = shared(100, Limits::default(), None);
    for name in 1..=100 {
        let (client, _): (ScriptedConnection, bool) = connect_as(&shared, name).await;
        // A second hello.
        client.script().messages.push_back(ClientMessage {
            body: Some(ClientBody::Hello(crate::proto::ClientHello::default())),
            ..Default::default()
        });
        client.script().waker.take().into_iter().for_each(std::task::Waker::wake);
        settle().await;
        assert!(client.script().closed);
    }
    let logged = lines.load(Ordering::Relaxed);
    assert!((1..=20).contains(&logged), "{logged} lines of 100 connections");
}
