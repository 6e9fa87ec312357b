//! The spans of requests that belong to a trace.

use super::super::latencies::{RequestKind, RequestTransport};
use super::super::session::Session;
use crate::proto::{self, reply::Body, request};
use reverie_core::table::SharedTable;
use std::sync::Arc;

impl Session {
    /// Opens the span of an insert, if its message announced one.
    pub(super) fn begin_insert_span(&mut self, id: u64, table: &SharedTable) {
        if let Some(transport) = self.transport_of_spans() {
            self.spans.begin(id, RequestKind::Insert.name(), transport, || table.name().to_owned());
        }
    }

    /// Opens the span of another request, if its message announced one.
    pub(super) fn begin_span(&mut self, request: &proto::Request) {
        let (Some(transport), Some(body)) = (self.transport_of_spans(), &request.body) else { return };
        let Some(verb) = verb(body) else { return };
        let shared = Arc::clone(&self.shared);
        self.spans.begin(request.id, verb, transport, || {
            // Only names of tables: a request may name anything.
            let known = named(body).into_iter().filter(|name| shared.tables.get(name).is_ok());
            known.collect::<Vec<_>>().join(",")
        });
    }

    fn transport_of_spans(&self) -> Option<RequestTransport> {
        let link = if self.spans.is_idle() { None } else { self.link.as_ref() };
        link.map(|link| RequestTransport::of(link.connection.transport()))
    }

    /// The tables that a request draws from, if it has a span.
    pub(super) fn traced_tables(&self, id: u64, parts: &[proto::SamplePart]) -> Vec<Arc<SharedTable>> {
        let parts = if self.spans.has(id) { parts } else { &[] };
        parts.iter().filter_map(|part| self.shared.tables.get(&part.table).ok().cloned()).collect()
    }

    /// Ends the span of a request that is answered by this.
    pub(super) fn end_span(&mut self, reply: &proto::Reply) {
        let error = if let Some(Body::Error(error)) = &reply.body { Some(error) } else { None };
        self.spans.end(reply.id, error);
    }
}

/// The name of a request in its span. `None` for those that clients of several servers make between their callers'.
fn verb(body: &request::Body) -> Option<&'static str> {
    Some(match body {
        request::Body::Sample(_) => RequestKind::Sample.name(),
        request::Body::Get(_) => RequestKind::Get.name(),
        request::Body::Query(_) => RequestKind::Query.name(),
        request::Body::Mutate(_) => RequestKind::Mutate.name(),
        request::Body::Delete(_) => RequestKind::Delete.name(),
        request::Body::Checkpoint(_) => RequestKind::Checkpoint.name(),
        request::Body::Can(_) => "can",
        request::Body::Reset(_) => "reset",
        request::Body::Configure(_) => "configure",
        request::Body::Info(_) => "info",
        request::Body::Why(_) => "why",
        request::Body::Durable(_) => "durable",
        request::Body::Grant(_) => return None,
    })
}

fn named(body: &request::Body) -> Vec<&str> {
    match body {
        request::Body::Sample(sample) => sample.parts.iter().map(|part| &part.table[..]).collect(),
        request::Body::Get(proto::Get { table, .. })
        | request::Body::Query(proto::Query { table, .. })
        | request::Body::Mutate(proto::Mutate { table, .. })
        | request::Body::Delete(proto::Delete { table, .. })
        | request::Body::Can(proto::Can { table, .. })
        | request::Body::Configure(proto::Configure { table, .. })
        | request::Body::Grant(proto::Grant { table, .. })
        | request::Body::Reset(table)
        | request::Body::Why(table) => vec![table],
        request::Body::Info(_) | request::Body::Durable(_) | request::Body::Checkpoint(_) => Vec::new(),
    }
}
