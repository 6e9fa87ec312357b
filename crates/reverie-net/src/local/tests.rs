//! Both ends over a real socket, without sessions: messages, refused peers, and what is left behind.

use super::directory::SocketDirectory;
use super::*;
use crate::proto::client_message::Body as Ask;
use crate::proto::server_message::Body as ServerBody;
use crate::proto::{
    Batch, Bulk, ClientMessage, Insert, Part, Request, ServerMessage, Slot, SlotRange, SlotWanted, bulk,
};
use crate::server::Limits;
use crate::transport::client::{Inlet, Outlet};
use crate::transport::server::ServerConnection;
use prost::Message;
use reverie_core::batch::Block as _;
use reverie_core::{Error, Result};
use std::fs;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A base directory of its own, removed at the end.
pub(super) struct TemporaryDirectory(pub(super) PathBuf);

impl TemporaryDirectory {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reverie-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn place(&self) -> SocketDirectory {
        SocketDirectory::below(&self.0).unwrap()
    }

    pub(super) fn sockets(&self) -> usize {
        self.place();
        let directory = fs::read_dir(&self.0).unwrap().next().unwrap().unwrap().path();
        fs::read_dir(directory).unwrap().count()
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits {
        max_connections: 10,
        max_pending_connections: 10,
        session_insert_bytes: 8 * MIB,
        total_insert_bytes: 64 * MIB,
        max_pending_requests: 100,
        session_batch_bytes: 4 * MIB,
        total_batch_bytes: 64 * MIB,
        linger: Duration::from_secs(1),
        ..Limits::default()
    }
}

fn listen(name: &str) -> (TemporaryDirectory, Listener) {
    let base = TemporaryDirectory::new(name);
    let listener = Listener::bind_at(base.place(), 8000, &limits()).unwrap();
    (base, listener)
}

async fn joined(listener: &Listener) -> (Box<dyn ServerConnection>, (LocalOutlet, LocalInlet)) {
    let traffic = Arc::default();
    let (connection, client) = tokio::join!(listener.accept(), connect(listener.path(), &traffic));
    (Box::new(connection), client.unwrap())
}

/// The server's end, with a peer that may send anything.
async fn hostile(listener: &Listener) -> (Box<dyn ServerConnection>, UnixStream) {
    let peer = UnixStream::connect(listener.path()).unwrap();
    (Box::new(listener.accept().await), peer)
}

async fn receive(connection: &mut dyn ServerConnection) -> Option<Result<ClientMessage>> {
    poll_fn(|context| {
        // As in a session: writing goes on while it waits.
        let _ = connection.poll_queued(context, 1);
        connection.poll_receive(context)
    })
    .await
}

async fn flush(connection: &mut dyn ServerConnection) {
    poll_fn(|context| connection.poll_queued(context, 1)).await;
}

async fn send(outlet: &mut LocalOutlet, message: ClientMessage, bulk: &[u8]) {
    outlet.ready(bulk.len() as u64).await.unwrap();
    if !bulk.is_empty() {
        outlet.bulk().put(bulk);
    }
    outlet.send(message).unwrap();
    while outlet.is_pressed() {
        outlet.ready(0).await.unwrap();
    }
}

fn insert(first_id: u64) -> ClientMessage {
    let insert = Insert { first_id, ..Insert::default() };
    ClientMessage { body: Some(Ask::Insert(insert)), ..ClientMessage::default() }
}

fn request(id: u64) -> ClientMessage {
    ClientMessage { body: Some(Ask::Request(Request { id, ..Request::default() })), ..ClientMessage::default() }
}

fn batch(id: u64, size: usize, slot: Option<Slot>) -> ServerMessage {
    let batch = Batch { id, bulk_bytes: size as u64, slot, ..Batch::default() };
    ServerMessage { body: Some(ServerBody::Batch(batch)) }
}

fn framed(message: &ClientMessage) -> Vec<u8> {
    let mut bytes = (message.encoded_len() as u32).to_le_bytes().to_vec();
    message.encode(&mut bytes).unwrap();
    bytes
}

/// Takes an insert's bulk bytes as the session does.
fn take(connection: &mut dyn ServerConnection, message: &ClientMessage) -> Result<(Vec<u8>, bool)> {
    let Some(Ask::Insert(Insert { bulk: Some(bulk), .. })) = &message.body else { panic!("no bulk bytes") };
    let bytes = {
        let received = connection.bulk(bulk)?;
        let mut bytes = vec![MaybeUninit::uninit(); received.len() as usize];
        received.copy_to(0, &mut bytes).to_vec()
    };
    connection.consumed(bulk);
    Ok((bytes, matches!(bulk.place, Some(bulk::Place::Range(_)))))
}

#[tokio::test]
async fn bulk_bytes_of_inserts_go_within_the_message_until_there_is_a_slot_and_then_through_it() {
    let (_base, listener) = listen("inserts");
    let (mut connection, (mut outlet, mut inlet)) = joined(&listener).await;
    let (mut through_slot, answered) = (Vec::new(), tokio::sync::Notify::new());
    let sending = async {
        for id in 1..=40 {
            send(&mut outlet, insert(id), &vec![id as u8; 300_000]).await;
            if id == 1 {
                // The slot that it requested arrives before the answer.
                send(&mut outlet, request(99), &[]).await;
                answered.notified().await;
            }
        }
    };
    // Without the report that bytes were consumed, a client whose slot is full would wait forever.
    let reading = async {
        while let Some(arrived) = inlet.receive().await.unwrap() {
            match arrived.message.body {
                Some(ServerBody::Part(_)) => answered.notify_one(),
                _ => return,
            }
        }
    };
    let server = async {
        let mut id = 0;
        while id < 40 {
            let message = receive(&mut *connection).await.unwrap().unwrap();
            match &message.body {
                Some(Ask::Insert(_)) => {
                    id += 1;
                    let (bytes, slot) = take(&mut *connection, &message).unwrap();
                    assert!(bytes == vec![id as u8; 300_000], "insert {id}");
                    through_slot.push(slot);
                }
                Some(Ask::SlotWanted(SlotWanted { size_bytes })) => connection.slot_wanted(*size_bytes).unwrap(),
                _ => connection.send(ServerMessage { body: Some(ServerBody::Part(Part::default())) }),
            }
        }
        connection.send(ServerMessage { body: Some(ServerBody::Goodbye(Default::default())) });
        flush(&mut *connection).await;
    };
    let all = async { tokio::join!(sending, reading, server) };
    tokio::time::timeout(Duration::from_secs(200), all).await.expect("no request waits for ever");
    assert!(!through_slot[0] && through_slot[1..].iter().all(|slot| *slot), "{through_slot:?}");
}

#[tokio::test]
async fn a_batch_is_gathered_into_the_memory_that_the_client_reads() {
    let (_base, listener) = listen("batches");
    let (mut connection, (mut outlet, mut inlet)) = joined(&listener).await;
    let mut places = Vec::new();
    for round in 0..5u8 {
        send(&mut outlet, request(1), &[]).await;
        let message = receive(&mut *connection).await.unwrap().unwrap();
        connection.freed(&message.freed_slots).unwrap();
        let mut lent = connection.lend(100_000).unwrap();
        lent.bytes().iter_mut().for_each(|byte| _ = byte.write(round));
        connection.send(batch(1, 100_000, Some(lent.give())));
        flush(&mut *connection).await;
        let arrived = inlet.receive().await.unwrap().unwrap();
        let block = arrived.block.unwrap();
        let Some(ServerBody::Batch(batch)) = arrived.message.body else { panic!("a batch was sent") };
        assert_eq!((block.len() >= 100_000, batch.slot.unwrap().fresh), (true, round == 0));
        places.push(block.as_ptr());
    }
    places.dedup();
    assert_eq!(places.len(), 1, "one slot served all, freed with the next request");
    assert_eq!(listener.shared_bytes(), 128 << 10);
}

#[tokio::test]
async fn a_batch_without_a_free_slot_is_left_to_parts() {
    let (_base, listener) = listen("full");
    let (mut connection, (_outlet, mut inlet)) = joined(&listener).await;
    let mut held = Vec::new();
    for id in 0..4 {
        let lent = connection.lend(MIB as usize).unwrap();
        connection.send(batch(id, 10, Some(lent.give())));
        flush(&mut *connection).await;
        held.push(inlet.receive().await.unwrap().unwrap().block.unwrap());
    }
    assert!(connection.lend(1).is_none(), "the bound of the session");
    connection.send(batch(9, 10, None));
    flush(&mut *connection).await;
    assert!(inlet.receive().await.unwrap().unwrap().block.is_none());
}

#[tokio::test]
async fn nothing_is_left_of_a_connection_that_ended_while_what_is_held_stays() {
    let (base, listener) = listen("ends");
    let (mut connection, (outlet, mut inlet)) = joined(&listener).await;
    connection.slot_wanted(MIB).unwrap();
    let mut lent = connection.lend(10).unwrap();
    lent.bytes()[9].write(7);
    connection.send(batch(1, 10, Some(lent.give())));
    flush(&mut *connection).await;
    let block = inlet.receive().await.unwrap().unwrap().block.unwrap();
    assert!(listener.shared_bytes() > MIB);
    drop((outlet, inlet));
    assert!(receive(&mut *connection).await.is_none(), "the client is gone");
    drop(connection);
    assert_eq!((listener.shared_bytes(), block.len()), (0, 64 << 10));
    drop(listener);
    assert_eq!(base.sockets(), 0);
}

#[tokio::test]
async fn last_words_are_sent_before_the_connection_is_closed() {
    let (_base, listener) = listen("last");
    let (mut connection, (_outlet, mut inlet)) = joined(&listener).await;
    connection.send(ServerMessage { body: Some(ServerBody::Goodbye(Default::default())) });
    connection.close();
    assert!(matches!(inlet.receive().await.unwrap().unwrap().message.body, Some(ServerBody::Goodbye(_))));
    assert!(inlet.receive().await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_never_pauses_gets_its_answers_all_the_same() {
    let (_base, listener) = listen("never_pauses");
    let (mut connection, mut peer) = hostile(&listener).await;
    let asked = (0..100).flat_map(|id| framed(&request(id))).collect::<Vec<_>>();
    peer.write_all(&asked).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut answered_after = None;
    for number in 0..100 {
        receive_only(&mut *connection).await;
        connection.send(ServerMessage::default());
        let read = peer.read(&mut [0; 1000]).unwrap_or(0);
        if read > 0 && answered_after.is_none() {
            answered_after = Some(number);
        }
    }
    assert!(answered_after.is_some_and(|number| (8..50).contains(&number)), "{answered_after:?}");
}

/// Receives a message without sending, as a session does while more are available.
async fn receive_only(connection: &mut dyn ServerConnection) {
    poll_fn(|context| match connection.poll_queued(context, u64::MAX) {
        Poll::Ready(()) => connection.poll_receive(context),
        Poll::Pending => Poll::Pending,
    })
    .await
    .unwrap()
    .unwrap();
}

#[tokio::test]
async fn false_reports_about_slots_end_their_connection() {
    let (_base, listener) = listen("lies");
    let (mut honest, (mut outlet, _inlet)) = joined(&listener).await;
    let range =
        |slot, start, size_bytes| Bulk { place: Some(bulk::Place::Range(SlotRange { slot, start, size_bytes })) };
    let lies = [range(0, 0, 1), range(1, 0, u64::MAX), range(1, u64::MAX, 2), range(1, 8, 1), range(2, 0, 1)];
    for lie in lies {
        let (mut connection, mut peer) = hostile(&listener).await;
        connection.slot_wanted(MIB).unwrap();
        let mut message = insert(1);
        if let Some(Ask::Insert(insert)) = &mut message.body {
            insert.bulk =
                Some(Bulk { place: Some(bulk::Place::Range(SlotRange { slot: 1, start: 0, size_bytes: 9 })) });
        }
        peer.write_all(&framed(&message)).unwrap();
        let first = receive(&mut *connection).await.unwrap().unwrap();
        assert_eq!(take(&mut *connection, &first).unwrap().0, [0; 9]);
        assert!(matches!(connection.bulk(&lie).map(|_| ()), Err(Error::Protocol(_))), "{lie:?}");
        assert!(matches!(connection.freed(&[0]), Err(Error::Protocol(_))), "a slot that was not lent");
    }
    send(&mut outlet, request(5), &[]).await;
    assert!(receive(&mut *honest).await.unwrap().is_ok(), "others are not concerned");
}

#[tokio::test]
async fn random_bytes_and_false_lengths_differ_from_a_lost_connection() {
    let (_base, listener) = listen("bytes");
    let (mut connection, mut peer) = hostile(&listener).await;
    peer.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(matches!(receive(&mut *connection).await, Some(Err(Error::Protocol(_)))));
    let (mut connection, mut peer) = hostile(&listener).await;
    peer.write_all(&framed(&request(1))[..5]).unwrap();
    drop(peer);
    assert!(receive(&mut *connection).await.is_none(), "lost within a message");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_waited_for_without_more_being_queued() {
    let (_base, listener) = listen("slow");
    let (mut connection, peer) = hostile(&listener).await;
    let part = Part { data: vec![0; MIB as usize].into(), ..Part::default() };
    connection.send(ServerMessage { body: Some(ServerBody::Part(part)) });
    let full = poll_fn(|context| Poll::Ready(connection.poll_queued(context, 1000).is_pending())).await;
    assert!(full && connection.queued_bytes() > 1000);
    drop(peer);
    flush(&mut *connection).await;
    connection.send(ServerMessage::default());
}

#[tokio::test]
async fn no_server_listens_where_one_was() {
    let base = TemporaryDirectory::new("none");
    let path = base.0.join("gone.sock");
    drop(UnixStream::connect(&path));
    for path in [path.as_path(), Path::new("/nowhere/at/all.sock")] {
        let refused = connect(path.to_str().unwrap(), &Arc::default()).await.map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::Unavailable(why) if why.contains(".sock")));
    }
}
