//! The figures of a disk tier.

use crate::proto;
use reverie_core::chunk::TierInfo;

/// Encodes the figures of a disk tier.
pub fn encode(info: TierInfo) -> proto::DiskInfo {
    proto::DiskInfo {
        folder: info.folder,
        memory_bytes: info.memory,
        max_memory_bytes: info.memory_bytes,
        num_chunks: info.chunks,
        chunk_bytes: info.stored,
        file_bytes: info.used,
        max_file_bytes: info.disk_bytes,
        num_moved: info.moved,
        compacted_bytes: info.compacted,
        error: info.error,
        shared_bytes: info.shared,
    }
}

/// Decodes the figures of a disk tier.
pub fn decode(info: proto::DiskInfo) -> TierInfo {
    TierInfo {
        folder: info.folder,
        memory: info.memory_bytes,
        memory_bytes: info.max_memory_bytes,
        chunks: info.num_chunks,
        stored: info.chunk_bytes,
        shared: info.shared_bytes,
        used: info.file_bytes,
        disk_bytes: info.max_file_bytes,
        moved: info.num_moved,
        compacted: info.compacted_bytes,
        error: info.error,
    }
}
