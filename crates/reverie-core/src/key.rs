//! The key of an item; a separate module, because errors use it and know no items.

use smallvec::SmallVec;

/// The key of an item in its table: 63 bits, so that a signed 64-bit integer holds it.
///
/// `shard (6 bits) | generation (29 bits) | slot (28 bits)`. Look-up is an index; the generation distinguishes a key of
/// an earlier item of the slot from the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(i64);

/// Keys of inserted items; a single key needs no allocation.
pub type Keys = SmallVec<[Key; 1]>;

impl Key {
    /// Bits of the slot.
    pub const SLOT_BITS: u32 = 28;
    /// Bits of the generation.
    pub const GENERATION_BITS: u32 = 29;
    /// Bits of the shard.
    pub const SHARD_BITS: u32 = 6;
    /// The most slots of a table.
    pub const MAX_SLOTS: usize = 1 << Self::SLOT_BITS;

    /// Packs the parts; each is truncated to its bits.
    pub fn new(shard: u8, generation: u32, slot: u32) -> Self {
        let shard = i64::from(shard) & ((1 << Self::SHARD_BITS) - 1);
        let generation = i64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        let slot = i64::from(slot) & ((1 << Self::SLOT_BITS) - 1);
        Self((shard << Self::GENERATION_BITS | generation) << Self::SLOT_BITS | slot)
    }

    /// The key as the integer that users see.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The shard.
    pub fn shard(self) -> u8 {
        ((self.0 >> (Self::SLOT_BITS + Self::GENERATION_BITS)) & ((1 << Self::SHARD_BITS) - 1)) as u8
    }

    /// The generation.
    pub fn generation(self) -> u32 {
        ((self.0 >> Self::SLOT_BITS) & ((1 << Self::GENERATION_BITS) - 1)) as u32
    }

    /// The slot.
    pub fn slot(self) -> u32 {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as u32
    }
}

impl From<i64> for Key {
    /// Any integer is a key; keys that no table returned are found in none.
    fn from(key: i64) -> Self {
        Self(key)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
