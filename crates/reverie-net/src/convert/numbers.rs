//! Lists of numbers as little-endian bytes: on most machines one copy, where a list of protobuf is read one by one.

use super::broken;
use bytes::Bytes;
use reverie_core::Result;

/// Encodes keys.
pub fn encode_keys(keys: &[i64]) -> Bytes {
    keys.iter().map(|key| key.to_le_bytes()).collect::<Vec<_>>().into_flattened().into()
}

/// Encodes priorities.
pub fn encode_priorities(priorities: &[f64]) -> Bytes {
    priorities.iter().map(|priority| priority.to_le_bytes()).collect::<Vec<_>>().into_flattened().into()
}

/// Decodes keys. `Protocol` for a part of a number.
pub fn decode_keys(bytes: &[u8]) -> Result<Vec<i64>> {
    Ok(words(bytes, "keys")?.iter().map(|word| i64::from_le_bytes(*word)).collect())
}

/// Decodes priorities. `Protocol` for a part of a number.
pub fn decode_priorities(bytes: &[u8]) -> Result<Vec<f64>> {
    Ok(words(bytes, "priorities")?.iter().map(|word| f64::from_le_bytes(*word)).collect())
}

fn words<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [[u8; 8]]> {
    match bytes.as_chunks() {
        (words, []) => Ok(words),
        _ => Err(broken(format!("{} bytes of {what}, which have 8 bytes each", bytes.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverie_core::Error;

    #[test]
    fn numbers_are_read_as_they_were_written_and_a_part_of_one_is_refused() {
        let (keys, priorities) = ([0, -1, i64::MAX], [0.0, -0.5, f64::INFINITY]);
        assert_eq!(encode_keys(&keys)[8..16], [0xff; 8]);
        assert_eq!(decode_keys(&encode_keys(&keys)).unwrap(), keys);
        assert_eq!(decode_priorities(&encode_priorities(&priorities)).unwrap(), priorities);
        assert!(decode_keys(&[]).unwrap().is_empty());
        for len in [1, 7, 9] {
            assert!(matches!(decode_keys(&vec![0; len]), Err(Error::Protocol(text)) if text.contains("bytes of keys")));
            assert!(matches!(decode_priorities(&vec![0; len]), Err(Error::Protocol(_))));
        }
    }
}
