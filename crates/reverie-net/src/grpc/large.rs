//! Messages that end in large bytes: those go out as they lie in memory, behind a head that is encoded by hand.

use bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// Messages are put together up to so many bytes.
pub(super) const TOGETHER: usize = 32 << 10;
/// Bytes that are worth a frame of their own.
pub(super) const LARGE: usize = 8 << 10;

/// Encodes a message of a gRPC stream up to the `len` bytes that must follow. They are the innermost of nested fields:
/// each level is the encoded fields that stand before it, and its number.
pub(super) fn put_head(levels: &[(&[u8], u32)], len: usize, out: &mut BytesMut) {
    // What each level's own field holds, and at last the whole.
    let mut sizes = [0_u64; 4];
    let mut size = len as u64;
    for (depth, (before, number)) in levels.iter().enumerate().rev() {
        sizes[depth] = size;
        size += before.len() as u64 + (key_len(*number) + encoded_len_varint(size)) as u64;
    }
    // Not compressed, and so many bytes.
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
