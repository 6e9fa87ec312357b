//! The messages of `proto/reverie/v1/replay.proto`, and the constants that both ends share. `make proto` writes the
//! messages from it.

#[allow(missing_docs, clippy::all)]
mod generated {
    include!("../generated/reverie.v1.rs");
}

pub use generated::*;

/// The version of the protocol. Ends with different versions refuse each other.
pub const PROTOCOL: u32 = 2;

/// The compiled proto, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("../generated/descriptors.bin");

/// The largest message, in either direction.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Batches are cut into parts of this size.
pub const PART_BYTES: usize = 1 << 20;

/// The largest chunk of a writer, before packing.
pub const MAX_CHUNK_BYTES: u64 = 1 << 28;
