//! The things that a peer without the token can do.

use crate::access::Authority;
use crate::frames::{self, DESCRIBE, HEALTH};
use crate::support::*;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::replay::Replay as _;
use reverie_core::table::Tables;
use reverie_net::client::Remote;
use reverie_net::endpoint::{self, Transport};
use reverie_net::listen;
use reverie_net::server::{Limits, ServerOptions, ServerTls};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// More than a peer without a token may send, and what is on its way within the test.
const GREETING: usize = 100 << 10;

fn with_token() -> ServerOptions {
    ServerOptions { token: Some("secret".to_owned()), ..options() }
}

/// A server of these connections.
fn serve<IO>(options: ServerOptions, connections: Vec<IO>) -> tokio::task::JoinHandle<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![table("a")], None, &clock, 7).unwrap());
    let peers = connections.into_iter().enumerate().map(|(at, io)| Ok((io, format!("10.0.0.{at}:1"))));
    let incoming = futures_util::stream::iter(peers.collect::<Vec<_>>());
    tokio::spawn(async move { listen::serve(tables, &options, incoming).await.unwrap() })
}

/// Messages of 4 MiB that are never whole, on 250 streams.
fn unfinished() -> impl Iterator<Item = Vec<u8>> {
    (0..250_u32).flat_map(|number| {
        let stream = 2 * number + 1;
        let begun = [frames::call(stream, HEALTH, None), frames::data(stream, &frames::prefix(4 << 20))].concat();
        std::iter::once(begun).chain((0..8).map(move |_| frames::data(stream, &[0; 16 << 10])))
    })
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_a_token_cannot_make_the_server_hold_more_than_a_greeting() {
    let (mut peer, io) = frames::pipe();
    serve(with_token(), vec![io]);
    peer.write_all(&frames::preface()).await.unwrap();
    let taken = frames::taken(&mut peer, unfinished()).await;
    assert!(taken < GREETING, "{taken} bytes were taken");
    assert!(frames::is_ended(&mut peer).await);
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_a_token_cannot_make_the_server_hold_more_than_a_greeting_through_tls() {
    let authority = Authority::new();
    let tls = Some(ServerTls { identity: authority.issue("localhost", false), client_ca: None });
    let (peer, io) = frames::pipe();
    serve(ServerOptions { tls, ..with_token() }, vec![io]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector =
        tokio_rustls::TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let mut peer = connector.connect(ServerName::try_from("localhost").unwrap(), peer).await.unwrap();
    peer.write_all(&frames::preface()).await.unwrap();
    // The peer's own end keeps some, too.
    let taken = frames::taken(&mut peer, unfinished()).await;
    assert!(taken < 2 * GREETING, "{taken} bytes were taken");
    assert!(frames::is_ended(&mut peer).await);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_refused_for_its_token_is_ended_within_a_time() {
    let (mut peer, io) = frames::pipe();
    let serving = serve(with_token(), vec![io]);
    let asks = [frames::preface(), frames::call(1, DESCRIBE, Some("wrong")), frames::last(1, &frames::prefix(0))];
    peer.write_all(&asks.concat()).await.unwrap();
    assert!(frames::is_ended(&mut peer).await);
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_only_asks_for_health_is_ended_within_a_time() {
    let (mut peer, io) = frames::pipe();
    let serving = serve(with_token(), vec![io]);
    let asks = [frames::preface(), frames::call(1, HEALTH, None), frames::last(1, &frames::prefix(0))];
    peer.write_all(&asks.concat()).await.unwrap();
    assert!(frames::is_ended(&mut peer).await);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_with_the_token_get_in_and_stay_while_unauthenticated_connections_flood_the_port() {
    let limits = Limits { max_pending_connections: 4, max_connections: 4, ..Limits::default() };
    let host = Host::with(vec![table("a")], ServerOptions { local: true, limits, ..with_token() });
    let address = host.server.address().to_string();
    let clients = [Transport::Grpc, Transport::SharedMemory].map(|transport| client(&address, transport));
    let mut unauthenticated = Vec::new();
    for round in 0..10 {
        for _ in 0..20 {
            let mut connection = TcpStream::connect(&address).await.unwrap();
            let asks = [frames::preface(), frames::call(1, DESCRIBE, Some("wrong"))].concat();
            connection.write_all(&asks).await.unwrap();
            // It shows that it lives, and is ended all the same.
            unauthenticated.push(tokio::spawn(async move { frames::is_ended(&mut connection).await }));
        }
        let new_client = client(&address, [Transport::Grpc, Transport::SharedMemory][round % 2]);
        for client in clients.iter().chain([&new_client]) {
            assert!(client.info().await.unwrap().max_connections.is_some());
        }
    }
    assert!(clients.iter().all(|client| client.link().reconnects == 0));
    unauthenticated.iter().for_each(tokio::task::JoinHandle::abort);
}

fn client(address: &str, transport: Transport) -> Arc<Remote> {
    let options = endpoint::EndpointOptions {
        address: address.to_owned(),
        transport,
        token: Some("secret".to_owned()),
        tls: None,
        patience: Duration::from_secs(100),
        grace: Duration::from_millis(50),
        max_kept_bytes: 0,
    };
    Remote::new(options).unwrap()
}

/// Counts the warnings that are logged.
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

#[tokio::test(start_paused = true)]
async fn connections_that_cannot_be_accepted_are_logged_sparingly() {
    let lines = Arc::new(AtomicUsize::new(0));
    let _logged = tracing::subscriber::set_default(Warnings(Arc::clone(&lines)));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![table("a")], None, &clock, 7).unwrap());
    let failed = || Err(std::io::Error::from_raw_os_error(24));
    let incoming = futures_util::stream::iter((0..1000).map(|_| failed()));
    let start = tokio::time::Instant::now();
    listen::serve::<tokio::io::DuplexStream>(tables, &options(), incoming).await.unwrap();
    let seconds = start.elapsed().as_secs() as usize;
    let logged = lines.load(Ordering::Relaxed);
    assert!(logged > 0 && logged <= 10 + seconds, "{logged} lines in {seconds} s");
}
