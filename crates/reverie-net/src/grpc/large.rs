//! Messages that end in large bytes, which are sent from where they are in memory, after a head encoded by hand.

use bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// Messages are joined up to this size.
pub(super) const TOGETHER: usize = 32 << 10;
/// Bytes from this size on get a frame of their own.
pub(super) const LARGE: usize = 8 << 10;

/// Encodes a message of a gRPC stream up to the `len` bytes that must follow.
/// These bytes are the innermost of nested fields: each level is the encoded fields before it, and its number.
pub(super) fn put_head(levels: &[(&[u8], u32)], len: usize, out: &mut BytesMut) {
    // The size of each level's own field; `size` becomes that of the message.
    let mut sizes = [0_u64; 4];
    let mut size = len as u64;
    for (depth, (before, number)) in levels.iter().enumerate().rev() {
        sizes[depth] = size;
        size += before.len() as u64 + (key_len(*number) + encoded_len_varint(size)) as u64;
    }
    // The prefix: not compressed, and the size.
    out.put_u8(0);
    out.put_u32(size as u32);
    for ((before, number), size) in levels.iter().zip(sizes) {
        out.put_slice(before);
        encode_key(*number, WireType::LengthDelimited, out);
        encode_varint(size, out);
    }
}

/// Encodes a message of a gRPC stream.
pub(super) fn put_whole(message: &impl prost::Message, out: &mut BytesMut) {
    out.put_u8(0);
    out.put_u32(message.encoded_len() as u32);
    message.encode(out).expect("a growing buffer has room");
}
