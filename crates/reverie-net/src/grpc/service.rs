//! The calls.

use super::stream::{Outgoing, call, way};
use crate::proto::replay_server::Replay;
use crate::proto::{ClientMessage, DescribeRequest, Description};
use crate::server::Shared;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// Who is at the other end, for the log.
#[derive(Clone)]
pub(super) struct Peer(pub(super) Arc<str>);

/// The service: every call becomes a way, and the way a session's.
pub(super) struct Service(pub(super) Arc<Shared>);

fn peer<T>(request: &Request<T>) -> String {
    request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.0.as_ref().to_owned())
}

#[tonic::async_trait]
impl Replay for Service {
    type SessionStream = Outgoing;
    type CallStream = Outgoing;

    async fn describe(&self, _request: Request<DescribeRequest>) -> Result<Response<Description>, Status> {
        Ok(Response::new(self.0.describe()))
    }

    async fn session(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = peer(&request);
        let (way, outgoing) = way(Box::pin(request.into_inner()), peer);
        tokio::spawn(Arc::clone(&self.0).welcome(Box::new(way)));
        Ok(Response::new(outgoing))
    }

    async fn call(&self, request: Request<ClientMessage>) -> Result<Response<Self::CallStream>, Status> {
        let peer = peer(&request);
        let (way, outgoing) = call(request.into_inner(), peer);
        self.0.call(Box::new(way));
        Ok(Response::new(outgoing))
    }
}
