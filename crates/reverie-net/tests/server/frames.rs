//! Frames of HTTP/2 from a peer that follows no rule: its connection takes the bytes that the test chooses.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

pub const HEALTH: &str = "/grpc.health.v1.Health/Check";
pub const DESCRIBE: &str = "/reverie.v1.Replay/Describe";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes that every connection begins with.
pub fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A gRPC call whose messages are still to come.
pub fn call(stream: u32, path: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "replay.test"),
        (":path", path),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ];
    fields.extend(bearer.iter().map(|bearer| ("authorization", bearer.as_str())));
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal field that is not to be remembered.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// Bytes of the call's messages.
pub fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, bytes)
}

/// The last bytes of the call's messages.
pub fn last(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, bytes)
}

/// The bytes before a message of so many bytes.
pub fn prefix(len: u32) -> Vec<u8> {
    [&[0][..], &len.to_be_bytes()].concat()
}

/// Writes until the other end takes no more: the bytes that it took.
pub async fn taken(io: &mut (impl AsyncWrite + Unpin), chunks: impl IntoIterator<Item = Vec<u8>>) -> usize {
    let mut taken = 0;
    for chunk in chunks {
        match tokio::time::timeout(Duration::from_secs(3600), io.write_all(&chunk)).await {
            Ok(Ok(())) => taken += chunk.len(),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    taken
}

/// Reads until the other end ends the connection, and shows it that this one lives; false if it lasts for an hour.
pub async fn is_ended(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> bool {
    let answering = async { while answer_ping(io).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(3600), answering).await.is_ok()
}

/// Reads a frame, and answers it where it asks whether this end lives.
async fn answer_ping(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    let mut head = [0; 9];
    io.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    io.read_exact(&mut payload).await?;
    if (kind, flags) == (PING, 0) {
        io.write_all(&frame(PING, ACK, 0, &payload)).await?;
    }
    Ok(())
}

/// The two ends of a connection.
pub fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(4096)
}
