//! Valid and invalid framing by a peer.

use super::*;
use crate::proto::{ClientMessage, Part, Received, ServerMessage, server_message::Body};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Write;

/// Our reader, and the peer's end of the socket.
fn hostile(descriptors: DescriptorPolicy) -> (SocketReader, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (split(ours, descriptors).unwrap().0, theirs)
}

fn pair() -> ((SocketReader, Writer), (SocketReader, Writer)) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (split(ours, DescriptorPolicy::Accept).unwrap(), split(theirs, DescriptorPolicy::Refused).unwrap())
}

fn part(id: u64, len: usize) -> ServerMessage {
    let data = (0..len).map(|index| (index as u64 + id) as u8).collect::<Vec<_>>();
    ServerMessage { body: Some(Body::Part(Part { id, offset: 0, data: data.into() })) }
}

fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = (message.encoded_len() as u32).to_le_bytes().to_vec();
    message.encode(&mut bytes).unwrap();
    bytes
}

fn send_with(peer: &UnixStream, bytes: &[u8], descriptors: usize) {
    let fds = (0..descriptors).map(|_| memfd_create("test", MemfdFlags::CLOEXEC).unwrap()).collect::<Vec<_>>();
    let fds = fds.iter().map(AsFd::as_fd).collect::<Vec<_>>();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(peer, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, bytes.len());
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn messages_of_all_lengths_arrive_in_order() {
    let ((_, mut writer), (mut reader, _)) = pair();
    let lengths = [0, 1, 100, BUFFER_BYTES - 40, BUFFER_BYTES, BUFFER_BYTES + 1, 1 << 20, 5, 3 << 20, 7];
    let sent = lengths.iter().enumerate().map(|(id, len)| part(id as u64, *len)).collect::<Vec<_>>();
    sent.iter().for_each(|message| writer.queue(message, None).unwrap());
    let all = writer.waiting() as u64;
    let receive = async {
        for message in &sent {
            assert!(reader.next::<ServerMessage>().await.unwrap().as_ref() == Some(message));
        }
    };
    let (flushed, ()) = tokio::join!(writer.flush(), receive);
    flushed.unwrap();
    assert_eq!((writer.waiting(), writer.sent, reader.received()), (0, all, all));
    writer.close();
    assert_eq!(reader.next::<ServerMessage>().await.unwrap(), None);
}

#[tokio::test]
async fn messages_that_came_together_are_given_without_another_call() {
    let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
    let bytes = [part(1, 10), part(2, 10), part(3, 10)].iter().flat_map(framed).collect::<Vec<_>>();
    peer.write_all(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(reader.next::<ServerMessage>().await.unwrap(), Some(part(1, 10)));
    assert_eq!(reader.buffered::<ServerMessage>().unwrap(), Some(part(2, 10)));
    assert_eq!(reader.buffered::<ServerMessage>().unwrap(), None, "its last byte is not there yet");
    peer.write_all(&bytes[bytes.len() - 1..]).unwrap();
    assert_eq!(reader.next::<ServerMessage>().await.unwrap(), Some(part(3, 10)));
}

#[tokio::test]
async fn a_message_may_come_byte_by_byte() {
    let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
    let send = async {
        for byte in framed(&part(9, 20)) {
            peer.write_all(&[byte]).unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (message, ()) = tokio::join!(reader.next::<ServerMessage>(), send);
    assert_eq!(message.unwrap(), Some(part(9, 20)));
}

#[tokio::test]
async fn a_length_that_lies_ends_the_connection_before_memory_is_set_aside() {
    for len in [MAX_MESSAGE_BYTES as u32 + 1, u32::MAX] {
        let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
        peer.write_all(&len.to_le_bytes()).unwrap();
        assert!(matches!(reader.next::<ClientMessage>().await, Err(Error::Protocol(_))), "{len}");
    }
    let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
    peer.write_all(&(MAX_MESSAGE_BYTES as u32).to_le_bytes()).unwrap();
    peer.write_all(&[0; 1000]).unwrap();
    drop(peer);
    assert!(matches!(reader.next::<ClientMessage>().await, Err(Error::Unavailable(_))));
    let (bytes, _) = reader.long.unwrap();
    assert!(bytes.capacity() <= 2 * LONG_AT_FIRST, "{} bytes for the 1000 that came", bytes.capacity());
}

#[tokio::test]
async fn bytes_that_are_no_message_are_a_violation() {
    let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
    peer.write_all(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).unwrap();
    assert!(matches!(reader.next::<ClientMessage>().await, Err(Error::Protocol(_))));
}

#[tokio::test]
async fn an_end_within_a_message_differs_from_one_between_messages() {
    let whole = framed(&part(1, BUFFER_BYTES * 2));
    for end in [1, 4, 5, BUFFER_BYTES + 17, whole.len() - 1] {
        let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
        peer.write_all(&whole[..end]).unwrap();
        drop(peer);
        assert!(matches!(reader.next::<ServerMessage>().await, Err(Error::Unavailable(_))), "{end}");
    }
    let (mut reader, mut peer) = hostile(DescriptorPolicy::Refused);
    peer.write_all(&whole).unwrap();
    drop(peer);
    assert!(reader.next::<ServerMessage>().await.unwrap().is_some());
    assert_eq!(reader.next::<ServerMessage>().await.unwrap(), None);
}

#[tokio::test]
async fn descriptors_come_in_the_order_of_their_messages_however_many_there_are() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut writer = split(ours, DescriptorPolicy::Refused).unwrap().1;
    let mut reader = split(theirs, DescriptorPolicy::Accept).unwrap().0;
    let count = 3 * DESCRIPTORS as u64 + 1;
    for id in 0..count {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, id).unwrap();
        writer.queue(&part(id, 5), None).unwrap();
        writer.queue(&part(id, 10), Some(fd)).unwrap();
    }
    writer.flush().await.unwrap();
    for id in 0..count {
        assert_eq!(reader.next().await.unwrap(), Some(part(id, 5)));
        assert_eq!(reader.next().await.unwrap(), Some(part(id, 10)));
        let fd = reader.descriptor().unwrap();
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size, id as i64);
    }
    assert!(matches!(reader.descriptor(), Err(Error::Protocol(_))), "no more came");
}

#[tokio::test]
async fn descriptors_where_none_may_be_end_the_connection_and_are_closed() {
    let (mut reader, peer) = hostile(DescriptorPolicy::Refused);
    let before = open_descriptors();
    send_with(&peer, &framed(&ClientMessage::default()), 3);
    assert!(matches!(reader.next::<ClientMessage>().await, Err(Error::Protocol(_))));
    assert!(open_descriptors() <= before, "a descriptor of the peer stayed open");
}

#[tokio::test]
async fn more_descriptors_than_a_message_may_have_end_the_connection() {
    let (mut reader, peer) = hostile(DescriptorPolicy::Accept);
    send_with(&peer, &framed(&part(1, 1)), 2 * DESCRIPTORS);
    assert!(matches!(reader.next::<ServerMessage>().await, Err(Error::Protocol(_))));
    let (mut reader, peer) = hostile(DescriptorPolicy::Accept);
    for _ in 0..=DESCRIPTORS_AHEAD / DESCRIPTORS {
        send_with(&peer, &framed(&part(1, 1)), DESCRIPTORS);
    }
    let mut received = 0;
    let refused = loop {
        match reader.next::<ServerMessage>().await {
            Ok(Some(_)) => received += 1,
            other => break other,
        }
    };
    assert!(matches!(refused, Err(Error::Protocol(_))) && received <= DESCRIPTORS_AHEAD / DESCRIPTORS);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_not_queued() {
    let ((_, mut writer), _peer) = pair();
    assert!(matches!(writer.queue(&part(1, MAX_MESSAGE_BYTES), None), Err(Error::Protocol(_))));
    assert_eq!(writer.waiting(), 0);
    let received = Some(Received { below: 7, ..Received::default() });
    writer.queue(&ClientMessage { received, ..ClientMessage::default() }, None).unwrap();
    assert!(writer.waiting() > PREFIX);
}

#[tokio::test]
async fn a_lost_peer_is_an_error_of_the_writer_not_a_signal() {
    let ((_, mut writer), theirs) = pair();
    drop(theirs);
    writer.queue(&part(1, 10), None).unwrap();
    assert!(matches!(writer.flush().await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_message_that_would_grow_when_it_is_decoded_is_refused_before() {
    use crate::proto::{ChunkCells, Insert, client_message};
    let ((_, mut writer), (mut reader, _)) = pair();
    let chunks = vec![ChunkCells::default(); 500_000];
    let body = Some(client_message::Body::Insert(Insert { chunks, ..Insert::default() }));
    writer.queue(&ClientMessage { body, ..ClientMessage::default() }, None).unwrap();
    let (refused, _) = tokio::join!(reader.next::<ClientMessage>(), async { writer.flush().await });
    assert!(matches!(refused, Err(Error::Protocol(why)) if why.contains("send fewer")));
}
