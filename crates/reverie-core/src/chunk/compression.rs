//! The setting of how chunks are stored, and what it trades between bytes and the time of a draw.

use std::fmt;
use std::str::FromStr;

/// The compression of a column group's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Compression {
    /// No compression: the cheapest reads.
    #[default]
    None,
    /// LZ4, after a per-step delta if that is smaller.
    Lz4,
    /// Zstandard, level 1, after a per-step delta if that is smaller.
    Zstd,
    /// Measured on the first chunks, column by column: raw, LZ4 or Zstandard. Between the two below.
    Auto,
    /// Like `Auto`; raw unless a column packs so well that its draws take little longer.
    AutoSpeed,
    /// Like `Auto`; packs each column that gets smaller, as small as it gets.
    AutoSize,
}

/// The gains in size that justify a coding of a column, as ratios.
///
/// Sizes alone decide, so that the same steps are packed alike on every machine. For the measured costs of unpacking
/// that the ratios stand for see `docs/decisions/0144-packed-data.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CodingThresholds {
    /// LZ4 is taken if it makes the column smaller by this factor.
    pub(super) lz4_from: f64,
    /// Zstandard is taken if it makes the column smaller by this factor ...
    pub(super) zstd_from: f64,
    /// ... and smaller than LZ4 does by this factor, if LZ4 is taken, too.
    pub(super) zstd_over_lz4: f64,
    /// A chunk is packed as a whole, not in blocks, if that is smaller by this factor.
    pub(super) whole_from: f64,
    pub(super) zstd_level: i32,
}

const AUTO: CodingThresholds =
    CodingThresholds { lz4_from: 1.4, zstd_from: 3.0, zstd_over_lz4: 2.0, whole_from: 1.5, zstd_level: 1 };
const SPEED: CodingThresholds =
    CodingThresholds { lz4_from: 5.0, zstd_from: 20.0, zstd_over_lz4: 4.0, whole_from: 4.0, zstd_level: 1 };
const SIZE: CodingThresholds =
    CodingThresholds { lz4_from: 1.0, zstd_from: 1.0, zstd_over_lz4: 1.0, whole_from: 1.0, zstd_level: 3 };

impl Compression {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::None, Self::Lz4, Self::Zstd, Self::Auto, Self::AutoSpeed, Self::AutoSize];

    /// The name that users give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Auto => "auto",
            Self::AutoSpeed => "auto:speed",
            Self::AutoSize => "auto:size",
        }
    }

    /// True if the coding of a column is found by measuring it.
    pub fn is_measured(self) -> bool {
        matches!(self, Self::Auto | Self::AutoSpeed | Self::AutoSize)
    }

    /// The compression of chunks whose steps have this number of bytes.
    ///
    /// `Auto` and `AutoSpeed` leave chunks of small steps raw: a draw of one of them would unpack a whole chunk.
    pub fn for_steps_of(self, bytes: usize) -> Self {
        const PACKED_STEP_BYTES: usize = 1 << 10;
        match self {
            Self::Auto | Self::AutoSpeed if bytes < PACKED_STEP_BYTES => Self::None,
            compression => compression,
        }
    }

    pub(super) fn trade(self) -> Option<CodingThresholds> {
        match self {
            Self::None => None,
            Self::Lz4 | Self::Zstd | Self::Auto => Some(AUTO),
            Self::AutoSpeed => Some(SPEED),
            Self::AutoSize => Some(SIZE),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = String;

    /// The compression of this name; the error lists all names.
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|compression| compression.name() == name).ok_or_else(|| {
            let [names @ .., last] = Self::ALL.map(|known| format!("\"{known}\""));
            format!("compression must be {} or {last}, got {name:?}", names.join(", "))
        })
    }
}
