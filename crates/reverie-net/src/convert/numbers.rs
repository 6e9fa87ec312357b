//! Lists of numbers as little-endian bytes: on most machines one copy, where a list of protobuf is read one by one.

use super::broken;
use bytes::Bytes;
use reverie_core::Result;

/// A number that lists on the wire have.
pub trait Number: Copy {
    /// Encodes a list.
    fn encode(numbers: &[Self]) -> Bytes;
    /// See [`decode`].
    fn decode(bytes: &[u8], what: &str) -> Result<Vec<Self>>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn encode(numbers: &[Self]) -> Bytes {
                numbers.iter().map(|number| number.to_le_bytes()).collect::<Vec<_>>().into_flattened().into()
            }

            fn decode(bytes: &[u8], what: &str) -> Result<Vec<Self>> {
                Ok(words(bytes, what)?.iter().map(|word| Self::from_le_bytes(*word)).collect())
            }
        }
    )*};
}

numbers!(u32, i32, u64, i64, f64);

/// Encodes a list.
pub fn encode<T: Number>(numbers: &[T]) -> Bytes {
    T::encode(numbers)
}

/// Decodes a list of `what`. `Protocol` for a part of a number.
pub fn decode<T: Number>(bytes: &[u8], what: &str) -> Result<Vec<T>> {
    T::decode(bytes, what)
}

/// The numbers of a list of `what`, of `N` bytes each. `Protocol` for a part of a number.
pub(crate) fn words<'a, const N: usize>(bytes: &'a [u8], what: &str) -> Result<&'a [[u8; N]]> {
    match bytes.as_chunks() {
        (words, []) => Ok(words),
        _ => Err(broken(format!("{} bytes of {what}, which have {N} bytes each", bytes.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverie_core::Error;

    #[test]
    fn numbers_are_read_as_they_were_written_and_a_part_of_one_is_refused() {
        let (keys, priorities) = ([0, -1, i64::MAX], [0.0, -0.5, f64::INFINITY]);
        assert_eq!(encode(&keys)[8..16], [0xff; 8]);
        assert_eq!(decode::<i64>(&encode(&keys), "keys").unwrap(), keys);
        assert_eq!(decode::<f64>(&encode(&priorities), "priorities").unwrap(), priorities);
        assert_eq!(decode::<i32>(&encode(&[-2, 3]), "cells").unwrap(), [-2, 3]);
        assert!(decode::<i64>(&[], "keys").unwrap().is_empty());
        for len in [1, 7, 9] {
            let refused = decode::<i64>(&vec![0; len], "keys");
            assert!(matches!(refused, Err(Error::Protocol(text)) if text.contains("bytes of keys")));
            assert!(matches!(decode::<f64>(&vec![0; len], "priorities"), Err(Error::Protocol(_))));
            assert!(matches!(decode::<u32>(&vec![0; len], "versions"), Err(Error::Protocol(_))));
        }
    }
}
