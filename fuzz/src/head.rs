//! Messages as a server takes them: what is decoded takes no more memory than its size allows, and is what the decoder
//! makes of it without the bound.

use prost::Message;
use reverie_net::head;
use reverie_net::proto::ClientMessage;

/// Memory for each byte of a message at most; `tests/heads.rs` of the crate measures what long messages take.
const FACTOR: usize = 128;
/// Memory that does not depend on the message: errors, and the first entries of lists.
const BESIDE: usize = 64 << 10;

/// Panics if it does not hold for this input. `taken` gives the bytes of memory that a function took at once.
/// True if the input is a message.
pub fn check(input: &[u8], taken: impl FnOnce(&mut dyn FnMut()) -> usize) -> bool {
    let mut decoded = None;
    let taken = taken(&mut || decoded = Some(head::decode::<ClientMessage>(input)));
    assert!(taken <= FACTOR * input.len() + BESIDE, "{taken} bytes for {}", input.len());
    let is_decoded = decoded.is_some_and(|decoded| decoded.is_ok());
    // An input is shorter than the longest head.
    assert!(input.len() > head::MAX_HEAD_BYTES || is_decoded == ClientMessage::decode(input).is_ok());
    is_decoded
}
