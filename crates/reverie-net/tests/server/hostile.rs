use crate::support::*;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, ClientMessage, reply, request};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A session goes on, and draws.
async fn assert_usable(session: &mut Session) {
    let id = session.ask(sample("a", 1), None);
    assert_eq!(session.whole(id).await.values(), [1.0]);
}

fn raw(host: &Host) -> TcpStream {
    let stream = TcpStream::connect(host.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(200))).unwrap();
    stream
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn random_bytes_at_the_port_leave_other_clients_unharmed() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: usize| -> Vec<u8> {
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..n).map(|_| byte()).collect()
    };
    for attempt in 0..24usize {
        let mut bytes = if attempt % 2 == 0 { preface.clone() } else { Vec::new() };
        if attempt % 4 == 0 {
            bytes.extend(frame(4, 0, 0, &[]));
        }
        bytes.extend(random(64 << (attempt % 6)));
        let mut stream = raw(&host);
        // The server may have closed by then.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // A frame whose head has the greatest length of a frame, without its body.
    let mut malformed = raw(&host);
    malformed.write_all(&[&preface[..], &frame(4, 0, 0, &[]), &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat()).unwrap();
    assert_usable(&mut session).await;
    let mut answer = Vec::new();
    malformed.read_to_end(&mut answer).expect("the connection is ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_breaks_a_rule_ends_its_connection_with_the_reason() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let mut other = host.session(99).await;
    let slot = proto::SlotRange { slot: 3, start: 0, size_bytes: 8 };
    let in_slot = proto::Bulk { place: Some(proto::bulk::Place::Range(slot)) };
    let cases: Vec<(ClientMessage, &str)> = vec![
        (hello([7; 16]), "hello"),
        (message(ClientBody::SlotWanted(proto::SlotWanted { size_bytes: 1 })), "slot"),
        (ClientMessage { freed_slots: vec![1], ..Default::default() }, "slot"),
        (message(ClientBody::Insert(insert(1, 5, &[1.0], 1))), "table number 5"),
        (message(ClientBody::Insert(proto::Insert { bulk: Some(in_slot), ..insert(1, 0, &[1.0], 1) })), "slot 3"),
    ];
    for (at, (bad, reason)) in cases.into_iter().enumerate() {
        let mut session = host.session(at as u8).await;
        session.send.send(bad).unwrap();
        let rule = session.violation().await;
        assert!(rule.contains(reason), "{rule}");
    }
    // Cells that the bulk bytes do not have.
    let mut session = host.session(50).await;
    let mut malformed = insert(1, 0, &[1.0], 1);
    malformed.chunks[0].cells = 1000;
    malformed.chunks[0].layout.as_mut().unwrap().capacity = 1000;
    session.send.send(message(ClientBody::Insert(malformed))).unwrap();
    session.violation().await;
    assert_usable(&mut other).await;
    assert_eq!(host.size("a"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_first_message_that_is_no_hello_is_refused() {
    let host = Host::new(vec![table("a")]);
    let request = proto::Request { id: 1, timeout: None, body: Some(request::Body::Info(proto::InfoRequest {})) };
    let short = proto::ClientHello { protocol: proto::PROTOCOL, session: vec![1; 15], ..Default::default() };
    for bad in [message(ClientBody::Request(request)), ClientMessage::default(), message(ClientBody::Hello(short))] {
        let mut session = Session::start(host.client().await).await;
        session.send.send(bad).unwrap();
        session.violation().await;
    }
    let old = proto::ClientHello { protocol: 999, session: vec![1; 16], ..Default::default() };
    let mut session = Session::start(host.client().await).await;
    session.send.send(message(ClientBody::Hello(old))).unwrap();
    let reason = session.goodbye().await.reason.unwrap().kind.unwrap();
    assert!(matches!(&reason, Kind::Incompatible(text) if text.contains("999")), "{reason:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_is_too_long_ends_its_connection() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let (mut session, mut other) = (host.session(1).await, host.session(2).await);
    let bytes = vec![0; proto::MAX_MESSAGE_BYTES];
    let bulk = Some(proto::Bulk { place: Some(proto::bulk::Place::Inline(bytes.into())) });
    session.send.send(message(ClientBody::Insert(proto::Insert { bulk, ..Default::default() }))).unwrap();
    session.violation().await;
    assert_usable(&mut other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_would_grow_when_it_is_decoded_is_refused_before() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let (mut session, mut other) = (host.session(1).await, host.session(2).await);
    // Two bytes each on the way, and two hundred where it arrives.
    let chunks = vec![proto::ChunkCells::default(); 500_000];
    let growing = message(ClientBody::Insert(proto::Insert { chunks, ..Default::default() }));
    session.send.send(growing.clone()).unwrap();
    let rule = session.violation().await;
    assert!(rule.contains("send fewer"), "{rule}");
    let refused = host.client().await.call(growing).await.unwrap_err();
    assert!(refused.message().contains("send fewer"), "{refused}");
    assert_usable(&mut other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_checkpoint_that_panics_is_an_error_of_its_request() {
    let checkpoint: std::sync::Arc<dyn Fn() -> reverie_core::Result<String> + Send + Sync> =
        std::sync::Arc::new(|| panic!("a panic on request"));
    let host =
        Host::with(vec![table("a")], reverie_net::server::ServerOptions { checkpoint: Some(checkpoint), ..options() });
    let mut session = host.session(1).await;
    let id = session.ask(request::Body::Checkpoint(proto::CheckpointRequest {}), None);
    assert!(matches!(session.reply(id).await, reply::Body::Error(_)));
    host.fill("a", [1.0]);
    assert_usable(&mut session).await;
}
