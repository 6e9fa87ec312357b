//! The calls of the gRPC service.

use super::body::{HttpResponseBody, SessionBody};
use super::frames::Messages;
use super::stream::{call, connection};
use crate::proto::replay_server::Replay;
use crate::proto::{ClientMessage, DescribeRequest, Description, ServerMessage};
use crate::server::ServerState;
use hyper::body::Incoming;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_stream::Empty;
use tonic::body::Body;
use tonic::{Request, Response, Status, Streaming};

/// The peer's name, for the log.
#[derive(Clone)]
pub(super) struct Peer(pub(super) Arc<str>);

/// The body of a response, carried past the encoder, which would copy it; [`ReplyBody::fill`] puts it in.
#[derive(Clone)]
pub(super) struct ReplyBody(Arc<Mutex<Option<SessionBody>>>);

impl ReplyBody {
    fn response<T>(outgoing: SessionBody) -> Response<Empty<T>> {
        let mut response = Response::new(tokio_stream::empty());
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(outgoing)))));
        response
    }

    /// The response with its body.
    pub(super) fn fill(mut response: http::Response<Body>) -> http::Response<HttpResponseBody> {
        let answer = response.extensions_mut().remove::<Self>();
        let outgoing = answer.and_then(|answer| answer.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        response.map(|body| outgoing.map_or(HttpResponseBody::Routed(body), HttpResponseBody::Session))
    }
}

/// The path of sessions, as in the proto.
pub(super) const SESSION: &str = "/reverie.v1.Replay/Session";

/// The body of a session's request, carried past the decoder, which would copy it.
#[derive(Clone)]
pub(super) struct RequestBody(Arc<Mutex<Option<Incoming>>>);

impl RequestBody {
    /// Splits the body off the request and stores it in the request's extensions.
    pub(super) fn set_aside(request: http::Request<Incoming>) -> http::Request<Body> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Self(Arc::new(Mutex::new(Some(body)))));
        http::Request::from_parts(parts, Body::empty())
    }

    fn take<T>(request: &Request<T>) -> Option<Incoming> {
        let asked = request.extensions().get::<Self>()?;
        asked.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The service: each call becomes a [`ServerConnection`], which a session serves.
pub(super) struct Service(pub(super) Arc<ServerState>);

fn peer<T>(request: &Request<T>) -> String {
    request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.0.as_ref().to_owned())
}

#[tonic::async_trait]
impl Replay for Service {
    type SessionStream = Empty<Result<ServerMessage, Status>>;
    type CallStream = Empty<Result<ServerMessage, Status>>;

    async fn describe(&self, _request: Request<DescribeRequest>) -> Result<Response<Description>, Status> {
        Ok(Response::new(self.0.describe()))
    }

    async fn session(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = peer(&request);
        let body = RequestBody::take(&request).ok_or_else(|| Status::internal("a session has no request body"))?;
        let mut messages = Messages::new(body);
        let unfinished = messages.unfinished();
        let inbound = futures_util::stream::poll_fn(move |context| messages.poll_next(context));
        let (connection, outgoing) = connection(Box::pin(inbound), unfinished, peer);
        tokio::spawn(Arc::clone(&self.0).handshake(Box::new(connection)));
        Ok(ReplyBody::response(outgoing))
    }

    async fn call(&self, request: Request<ClientMessage>) -> Result<Response<Self::CallStream>, Status> {
        let peer = peer(&request);
        let (connection, outgoing) = call(request.into_inner(), peer);
        self.0.call(Box::new(connection));
        Ok(ReplyBody::response(outgoing))
    }
}
