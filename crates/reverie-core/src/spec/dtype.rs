//! The types of array elements.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one array element.
///
/// `Bytes` and `Str` have no fixed width: each chunk defines the width of its elements (`Str` elements are UCS-4, as
/// NumPy's `U`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    BFloat16,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3B11Fnuz,
    Float8E4M3Fn,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Bytes,
    Str,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 25] = [
        DType::Bool,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::UInt8,
        DType::UInt16,
        DType::UInt32,
        DType::UInt64,
        DType::Float16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
        DType::BFloat16,
        DType::Float8E3M4,
        DType::Float8E4M3,
        DType::Float8E4M3B11Fnuz,
        DType::Float8E4M3Fn,
        DType::Float8E4M3Fnuz,
        DType::Float8E5M2,
        DType::Float8E5M2Fnuz,
        DType::Float8E8M0Fnu,
        DType::Bytes,
        DType::Str,
    ];

    /// Bytes of one element; `None` if each chunk has its own width.
    pub fn size(self) -> Option<usize> {
        use DType::*;
        Some(match self {
            Bool | Int8 | UInt8 | Float8E3M4 | Float8E4M3 | Float8E4M3B11Fnuz | Float8E4M3Fn | Float8E4M3Fnuz
            | Float8E5M2 | Float8E5M2Fnuz | Float8E8M0Fnu => 1,
            Int16 | UInt16 | Float16 | BFloat16 => 2,
            Int32 | UInt32 | Float32 => 4,
            Int64 | UInt64 | Float64 | Complex64 => 8,
            Complex128 => 16,
            Bytes | Str => return None,
        })
    }

    /// The dtype's name in NumPy or ml_dtypes.
    pub fn name(self) -> &'static str {
        use DType::*;
        match self {
            Bool => "bool",
            Int8 => "int8",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            UInt8 => "uint8",
            UInt16 => "uint16",
            UInt32 => "uint32",
            UInt64 => "uint64",
            Float16 => "float16",
            Float32 => "float32",
            Float64 => "float64",
            Complex64 => "complex64",
            Complex128 => "complex128",
            BFloat16 => "bfloat16",
            Float8E3M4 => "float8_e3m4",
            Float8E4M3 => "float8_e4m3",
            Float8E4M3B11Fnuz => "float8_e4m3b11fnuz",
            Float8E4M3Fn => "float8_e4m3fn",
            Float8E4M3Fnuz => "float8_e4m3fnuz",
            Float8E5M2 => "float8_e5m2",
            Float8E5M2Fnuz => "float8_e5m2fnuz",
            Float8E8M0Fnu => "float8_e8m0fnu",
            Bytes => "bytes",
            Str => "str",
        }
    }

    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl TryFrom<String> for DType {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::from_name(&name).ok_or_else(|| format!("unknown dtype '{name}'"))
    }
}

impl From<DType> for &'static str {
    fn from(dtype: DType) -> Self {
        dtype.name()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
