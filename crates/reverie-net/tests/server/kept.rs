//! A recorded session of this version of the protocol, which every later version of it reads.
//!
//! `tests/kept/session-VERSION` has what a client sent and what the server answered, each message behind its length (u32,
//! little-endian), as on a Unix socket. Never change or delete them. When the protocol gets another version, record it with
//! `cargo test -p reverie-net --test server -- --ignored kept` and commit it.

use crate::support::*;
use prost::Message;
use reverie_core::batch::BatchLayout;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, ClientMessage, PROTOCOL, ServerMessage, reply, request};
use std::path::{Path, PathBuf};

const VALUES: [f64; 3] = [1.5, -2.5, 3.5];
/// Numbers of the requests behind the inserts.
const MUTATE: u64 = 4;
const SAMPLE: u64 = 5;

fn folder(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kept/session-{version}"))
}

fn read<M: Message + Default>(name: &str) -> Vec<M> {
    each(PROTOCOL, name).iter().map(|message| M::decode(&message[..]).unwrap()).collect()
}

/// The messages that were recorded of a version.
fn each(version: u32, name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(folder(version).join(name)).unwrap();
    let (mut left, mut messages) = (&bytes[..], Vec::new());
    while let Some((length, behind)) = left.split_first_chunk() {
        let (message, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        messages.push(message.to_vec());
        left = behind;
    }
    assert!(left.is_empty());
    messages
}

fn write<M: Message>(name: &str, messages: &[M]) {
    let one = |message: &M| [&(message.encoded_len() as u32).to_le_bytes()[..], &message.encode_to_vec()].concat();
    std::fs::write(folder(PROTOCOL).join(name), messages.iter().flat_map(one).collect::<Vec<u8>>()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_recorded_session_of_a_client_is_answered_for_ever() {
    let host = Host::new(vec![queue("a", 3)]);
    let mut session = Session::start(host.client().await).await;
    let sent: Vec<ClientMessage> = read("client.bin");
    let [hello, insert, mutate, sample]: [ClientMessage; 4] = sent.try_into().unwrap();
    session.send.send(hello).unwrap();
    assert!(matches!(session.next().await, Some(Body::Hello(hello)) if hello.protocol == PROTOCOL && !hello.resumed));
    session.send.send(insert).unwrap();
    let keys = session.inserted(1, 3).await;
    session.send.send(mutate).unwrap();
    // The server that was recorded chose the key.
    let applied = keys[0] == recorded_keys()[0];
    let want = proto::Mutated { applied: applied.into(), stale: (!applied).into(), ..Default::default() };
    assert_eq!(session.reply(MUTATE).await, reply::Body::Mutated(want));
    session.send.send(sample).unwrap();
    let batch = session.whole(SAMPLE).await;
    assert_eq!((batch.values(), batch.keys()), (VALUES.to_vec(), keys));
}

fn recorded_keys() -> Vec<i64> {
    let inserted = |message: ServerMessage| match message.body {
        Some(Body::Inserted(inserted)) => Some(inserted.keys),
        _ => None,
    };
    read("server.bin").into_iter().find_map(inserted).expect("inserts were confirmed")
}

#[test]
fn the_recorded_answers_of_a_server_are_read_for_ever() {
    let answers: Vec<ServerMessage> = read("server.bin");
    let bodies: [Body; 5] =
        answers.into_iter().map(|answer| answer.body.unwrap()).collect::<Vec<_>>().try_into().unwrap();
    let [Body::Hello(hello), Body::Inserted(inserted), Body::Reply(reply), Body::Batch(batch), Body::Part(part)] =
        bodies
    else {
        panic!("other answers")
    };
    assert_eq!((hello.protocol, hello.resumed, hello.forgot), (PROTOCOL, false, false));
    assert!(hello.incarnation != 0 && hello.insert_credit_bytes > 0);
    assert_eq!((inserted.first_id, inserted.requests, inserted.keys.len()), (1, 3, 3));
    let mutated = proto::Mutated { applied: 1, ..Default::default() };
    assert_eq!((reply.id, reply.body), (MUTATE, Some(reply::Body::Mutated(mutated))));
    assert_eq!((batch.id, batch.num_draws, batch.last), (SAMPLE, 3, true));
    let head = convert::batch::decode_head(batch.new_head.unwrap()).unwrap();
    let layout = BatchLayout::new(3, &head.outputs).unwrap();
    assert_eq!((part.id, part.data.len()), (SAMPLE, layout.size_bytes));
    let numbers = |range: &std::ops::Range<usize>| -> Vec<[u8; 8]> { part.data[range.clone()].as_chunks().0.to_vec() };
    assert_eq!(numbers(&layout.outputs[0]), VALUES.map(f64::to_le_bytes));
    assert_eq!(numbers(&layout.info[0]), inserted.keys.iter().map(|key| key.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(numbers(&layout.info[2])[0], 7.25_f64.to_le_bytes(), "the priority that was set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_of_each_earlier_version_gets_both_versions() {
    for version in 1..PROTOCOL {
        let host = Host::new(vec![queue("a", 3)]);
        let mut session = Session::start(host.client().await).await;
        session.send.send(ClientMessage::decode(&each(version, "client.bin")[0][..]).unwrap()).unwrap();
        let reason = session.goodbye().await.reason.unwrap().kind.unwrap();
        let both = [format!("version {version} of"), format!("server version {PROTOCOL}")];
        assert!(matches!(&reason, Kind::Incompatible(text) if both.iter().all(|one| text.contains(one))), "{reason:?}");
        let answer = ServerMessage::decode(&each(version, "server.bin")[0][..]).unwrap();
        assert!(matches!(answer.body, Some(Body::Hello(hello)) if hello.protocol == version));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "records the session of a new version"]
async fn record_the_session_that_is_kept_of_this_version() {
    assert!(!folder(PROTOCOL).exists(), "{} is kept as it is", folder(PROTOCOL).display());
    let host = Host::new(vec![queue("a", 3)]);
    let mut session = Session::start(host.client().await).await;
    let (mut sent, mut answers) = (vec![hello([7; 16])], Vec::new());
    let insert = insert(1, 0, &VALUES, 1);
    let asked = |id, body| message(ClientBody::Request(proto::Request { id, timeout: None, body: Some(body) }));
    sent.push(message(ClientBody::Insert(insert)));
    for number in 0..4 {
        session.send.send(sent[number].clone()).unwrap();
        for _ in 0..1 + number / 3 {
            answers.push(session.next().await.unwrap());
        }
        match (number, answers.last()) {
            (1, Some(Body::Inserted(inserted))) => {
                let mutate = proto::Mutate {
                    table: "a".to_owned(),
                    keys: convert::numbers::encode(&[inserted.keys[0]]),
                    priorities: convert::numbers::encode(&[7.25]),
                    ..Default::default()
                };
                sent.push(asked(MUTATE, request::Body::Mutate(mutate)));
            }
            (2, _) => sent.push(asked(SAMPLE, sample("a", 3))),
            _ => {}
        }
    }
    std::fs::create_dir_all(folder(PROTOCOL)).unwrap();
    write("client.bin", &sent);
    let answer = |body| ServerMessage { body: Some(body) };
    write("server.bin", &answers.into_iter().map(answer).collect::<Vec<_>>());
}
