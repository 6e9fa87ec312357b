//! The promises that callers wait for, by kind of request.

use super::server_description::ServerDescription;
use crate::convert;
use crate::proto::reply::Body as Reply;
use crate::proto::request::Body;
use crate::proto::{self};
use reverie_core::replay::{Info, WaitSummary};
use reverie_core::sample::{DrawnBatch, SampleOutcome};
use reverie_core::table::{ChangeCounts, Promise, Tally};
use reverie_core::{Error, Result};
use std::sync::Arc;

/// The promise of a request.
pub(super) enum RequestPromise {
    Sampled(Promise<SampleOutcome>),
    Mutated(Promise<(ChangeCounts, ChangeCounts)>),
    Deleted(Promise<ChangeCounts>),
    Can(Promise<bool>),
    Done(Promise<()>),
    /// The client's own question, for which no caller waits.
    Own(Promise<()>),
    Info(Promise<Info>),
    Waits(Promise<WaitSummary>),
    /// The reason why a request waits, as text; the text of the error if the server does not answer.
    Sentence(Promise<String>),
    Checkpoint(Promise<String>),
    Tally(Promise<Tally>),
    /// The server's description; filled in when the connection is made.
    Described(Promise<Option<Arc<ServerDescription>>>),
}

impl RequestPromise {
    /// False if no caller would get the draws: their ticket was dropped.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Self::Sampled(promise) => promise.is_awaited(),
            Self::Own(_) => false,
            _ => true,
        }
    }

    /// Fills the promise with the server's reply. `Err` if the reply does not match the request.
    pub(super) fn fill(self, reply: Reply, batches: Vec<DrawnBatch>) -> Result<()> {
        match (self, reply) {
            (answer, Reply::Error(error)) => answer.fail(convert::error::decode(error), batches),
            (RequestPromise::Mutated(promise), Reply::Mutated(mutated)) => {
                let proto::Mutated { applied, stale, deleted, stale_deletes } = mutated;
                let deletes = ChangeCounts { applied: deleted, stale: stale_deletes };
                promise.fill(Ok((ChangeCounts { applied, stale }, deletes)));
            }
            (RequestPromise::Deleted(promise), Reply::Mutated(mutated)) => {
                promise.fill(Ok(ChangeCounts { applied: mutated.deleted, stale: mutated.stale_deletes }));
            }
            (RequestPromise::Can(promise), Reply::Can(can)) => promise.fill(Ok(can)),
            (RequestPromise::Done(promise) | RequestPromise::Own(promise), Reply::Done(_)) => promise.fill(Ok(())),
            (RequestPromise::Info(promise), Reply::Info(info)) => promise.fill(info_of(info)),
            (RequestPromise::Waits(promise), Reply::Why(why)) => promise.fill(convert::table::decode_waits(why)),
            (RequestPromise::Sentence(promise), Reply::Why(why)) => promise.fill(Ok(why.text)),
            (RequestPromise::Checkpoint(promise), Reply::Checkpoint(path)) => promise.fill(Ok(path)),
            (RequestPromise::Tally(promise), Reply::Tally(tally)) => promise.fill(convert::table::decode_tally(tally)),
            (answer, _) => {
                let error = Error::Protocol("the server's answer does not fit the request".to_owned());
                answer.fail(error.clone(), batches);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Fills the promise with the batches, which are complete.
    pub(super) fn sampled(self, batches: Vec<DrawnBatch>) -> Result<()> {
        match self {
            RequestPromise::Sampled(promise) => promise.fill(Ok(SampleOutcome { batches, error: None })),
            answer => {
                let error = Error::Protocol("the server sent a batch for a request that asked for none".to_owned());
                answer.fail(error.clone(), batches);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Fills the promise with an error, and with the batches that arrived before it.
    pub(super) fn fail(self, error: Error, batches: Vec<DrawnBatch>) {
        match self {
            RequestPromise::Sampled(promise) => promise.fill(Ok(SampleOutcome { batches, error: Some(error) })),
            RequestPromise::Sentence(promise) => promise.fill(Ok(error.to_string())),
            RequestPromise::Mutated(promise) => promise.fill(Err(error)),
            RequestPromise::Deleted(promise) => promise.fill(Err(error)),
            RequestPromise::Can(promise) => promise.fill(Err(error)),
            RequestPromise::Done(promise) | RequestPromise::Own(promise) => promise.fill(Err(error)),
            RequestPromise::Info(promise) => promise.fill(Err(error)),
            RequestPromise::Waits(promise) => promise.fill(Err(error)),
            RequestPromise::Checkpoint(promise) => promise.fill(Err(error)),
            RequestPromise::Tally(promise) => promise.fill(Err(error)),
            RequestPromise::Described(promise) => promise.fill(Err(error)),
        }
    }

    /// Fills the promise of a request that its caller withdrew, and that the server ended with this error.
    pub(super) fn end_withdrawn(self, detail: proto::ErrorDetail, batches: Vec<DrawnBatch>) {
        match convert::error::decode(detail) {
            error @ Error::NotCommitted { .. } => self.fail(error, batches),
            _ => self.withdraw(batches),
        }
    }

    /// Fills the promise of a request that its caller withdrew with the part that was done.
    pub(super) fn withdraw(self, batches: Vec<DrawnBatch>) {
        match self {
            RequestPromise::Sampled(promise) => promise.fill(Ok(SampleOutcome { batches, error: None })),
            RequestPromise::Sentence(promise) => promise.fill(Ok(String::new())),
            RequestPromise::Mutated(promise) => promise.fill(Ok(Default::default())),
            RequestPromise::Deleted(promise) => promise.fill(Ok(ChangeCounts::default())),
            RequestPromise::Can(promise) => promise.fill(Ok(false)),
            RequestPromise::Done(promise) | RequestPromise::Own(promise) => promise.fill(Ok(())),
            RequestPromise::Info(promise) => promise.fill(Ok(Info::default())),
            RequestPromise::Waits(promise) => promise.fill(Ok(WaitSummary::default())),
            RequestPromise::Checkpoint(promise) => promise.fill(Ok(String::new())),
            RequestPromise::Tally(promise) => promise.fill(Ok(Tally::default())),
            RequestPromise::Described(promise) => promise.fill(Ok(None)),
        }
    }
}

/// The figures; the client adds those of the connection.
fn info_of(info: proto::ServerInfo) -> Result<Info> {
    let tables = info.tables.into_iter().map(convert::table::decode_info);
    Ok(Info {
        tables: tables.collect::<Result<_>>()?,
        live_bytes: info.live_bytes,
        max_bytes: info.max_bytes,
        network_bytes: info.network_bytes,
        max_network_bytes: info.max_network_bytes,
        max_memory: info.max_memory,
        num_grpc_connections: info.grpc_connections,
        num_local_connections: info.local_connections,
        max_connections: Some(info.max_connections),
        journal: info.journal.map(convert::journal::decode).transpose()?,
        disk: info.disk.map(convert::disk::decode),
        shards: Vec::new(),
    })
}

/// Describes a request for a message: "sampling from table 'replay'".
pub(super) fn describe_request(body: Option<&Body>) -> String {
    match body {
        None => "asking for the server's tables".to_owned(),
        Some(Body::Sample(sample)) => {
            let tables: Vec<String> = sample.parts.iter().map(|part| format!("'{}'", part.table)).collect();
            format!("sampling from {}", tables.join(", "))
        }
        Some(Body::Get(get)) => format!("reading items of '{}'", get.table),
        Some(Body::Mutate(mutate)) => format!("changing priorities or deleting in '{}'", mutate.table),
        Some(Body::Query(query)) => format!("looking for items of '{}'", query.table),
        Some(Body::Delete(delete)) => format!("deleting in '{}'", delete.table),
        Some(Body::Can(can)) => format!("asking whether '{}' would accept a request", can.table),
        Some(Body::Reset(table)) => format!("resetting '{table}'"),
        Some(Body::Configure(configure)) => format!("configuring '{}'", configure.table),
        Some(Body::Info(_)) => "asking for the server's figures".to_owned(),
        Some(Body::Why(table)) => format!("asking which requests wait at '{table}'"),
        Some(Body::Grant(grant)) => format!("asking what '{}' holds", grant.table),
        Some(Body::Durable(_)) => "asking whether the journal is on the disk".to_owned(),
        Some(Body::Checkpoint(_)) => "asking for a checkpoint".to_owned(),
    }
}
