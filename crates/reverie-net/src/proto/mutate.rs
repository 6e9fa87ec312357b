//! `Mutate`, implemented by hand: its numbers have the same form in memory and in messages, and are copied in blocks.
//!
//! The generated code handles them one by one, and would copy a message that is kept until its answer arrives.

use super::Neighbours;
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{
    DecodeContext, WireType, decode_varint, double, encode_key, encode_varint, message, sfixed64, skip_field, string,
    uint32,
};
use std::sync::Arc;

/// See the proto. A clone shares the numbers.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Mutate {
    pub table: String,
    pub keys: Arc<Vec<i64>>,
    pub priorities: Arc<Vec<f64>>,
    pub if_version: Vec<u32>,
    pub deletes: Vec<i64>,
    pub neighbours: Option<Neighbours>,
}

impl prost::Message for Mutate {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if !self.table.is_empty() {
            string::encode(1, &self.table, buf);
        }
        put(2, &self.keys, |key| key.to_le_bytes(), buf);
        put(3, &self.priorities, |priority| priority.to_le_bytes(), buf);
        uint32::encode_packed(4, &self.if_version, buf);
        put(5, &self.deletes, |key| key.to_le_bytes(), buf);
        if let Some(neighbours) = &self.neighbours {
            message::encode(6, neighbours, buf);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let named = |mut error: DecodeError, field| {
            error.push("Mutate", field);
            error
        };
        match tag {
            1 => string::merge(wire_type, &mut self.table, buf, context).map_err(|error| named(error, "table")),
            2 => {
                let keys = Arc::make_mut(&mut self.keys);
                match take(wire_type, keys, i64::from_le_bytes, buf) {
                    true => Ok(()),
                    false => sfixed64::merge_repeated(wire_type, keys, buf, context),
                }
                .map_err(|error| named(error, "keys"))
            }
            3 => {
                let priorities = Arc::make_mut(&mut self.priorities);
                match take(wire_type, priorities, f64::from_le_bytes, buf) {
                    true => Ok(()),
                    false => double::merge_repeated(wire_type, priorities, buf, context),
                }
                .map_err(|error| named(error, "priorities"))
            }
            4 => uint32::merge_repeated(wire_type, &mut self.if_version, buf, context)
                .map_err(|error| named(error, "if_version")),
            5 => sfixed64::merge_repeated(wire_type, &mut self.deletes, buf, context)
                .map_err(|error| named(error, "deletes")),
            6 => message::merge(wire_type, self.neighbours.get_or_insert_default(), buf, context)
                .map_err(|error| named(error, "neighbours")),
            _ => skip_field(wire_type, tag, buf, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let table = if self.table.is_empty() { 0 } else { string::encoded_len(1, &self.table) };
        table
            + sfixed64::encoded_len_packed(2, &self.keys)
            + double::encoded_len_packed(3, &self.priorities)
            + uint32::encoded_len_packed(4, &self.if_version)
            + sfixed64::encoded_len_packed(5, &self.deletes)
            + self.neighbours.as_ref().map_or(0, |neighbours| message::encoded_len(6, neighbours))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Numbers that are copied at once.
const TOGETHER: usize = 32;
const WIDTH: usize = 8;

/// Encodes a packed list.
fn put<T: Copy>(tag: u32, numbers: &[T], bytes: impl Fn(T) -> [u8; WIDTH], buf: &mut impl BufMut) {
    if numbers.is_empty() {
        return;
    }
    encode_key(tag, WireType::LengthDelimited, buf);
    encode_varint((numbers.len() * WIDTH) as u64, buf);
    let (blocks, rest) = numbers.as_chunks::<TOGETHER>();
    for block in blocks {
        buf.put_slice(block.map(&bytes).as_flattened());
    }
    rest.iter().for_each(|number| buf.put_slice(&bytes(*number)));
}

/// Decodes a packed list that is complete; false if it is something else, and then nothing was taken.
fn take<T>(wire_type: WireType, numbers: &mut Vec<T>, number: impl Fn([u8; WIDTH]) -> T, buf: &mut impl Buf) -> bool {
    // The length has at most five bytes, which must be contiguous to be peeked at.
    let mut head = buf.chunk();
    let before = head.len();
    if wire_type != WireType::LengthDelimited || before < 10 {
        return false;
    }
    let Ok(len) = decode_varint(&mut head) else { return false };
    let skip = before - head.len();
    let whole = usize::try_from(len).ok().filter(|len| len % WIDTH == 0 && *len <= buf.remaining() - skip);
    let Some(len) = whole else { return false };
    buf.advance(skip);
    let mut left = len / WIDTH;
    numbers.reserve(left);
    let mut block = [[0; WIDTH]; TOGETHER];
    while left > 0 {
        let block = &mut block[..left.min(TOGETHER)];
        buf.copy_to_slice(block.as_flattened_mut());
        numbers.extend(block.iter().map(|bytes| number(*bytes)));
        left -= block.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    /// The message with the generated code.
    #[derive(Clone, PartialEq, Message)]
    struct Generated {
        #[prost(string, tag = "1")]
        table: String,
        #[prost(sfixed64, repeated, tag = "2")]
        keys: Vec<i64>,
        #[prost(double, repeated, tag = "3")]
        priorities: Vec<f64>,
        #[prost(uint32, repeated, tag = "4")]
        if_version: Vec<u32>,
        #[prost(sfixed64, repeated, tag = "5")]
        deletes: Vec<i64>,
        #[prost(message, optional, tag = "6")]
        neighbours: Option<Neighbours>,
    }

    /// As a client in another language may send it: each number with its own tag.
    #[derive(Clone, PartialEq, Message)]
    struct Unpacked {
        #[prost(sfixed64, repeated, packed = "false", tag = "2")]
        keys: Vec<i64>,
        #[prost(double, repeated, packed = "false", tag = "3")]
        priorities: Vec<f64>,
    }

    fn bits(numbers: &[f64]) -> Vec<u64> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_on_the_wire_what_the_generated_code_makes_of_it(
            table in "[a-z]{0,3}",
            keys in prop::collection::vec(any::<i64>(), 0..100),
            priorities in prop::collection::vec(any::<f64>(), 0..100),
            if_version in prop::collection::vec(any::<u32>(), 0..5),
            deletes in prop::collection::vec(any::<i64>(), 0..70),
            count in prop::option::of(1u32..9),
            cut in 1usize..40,
        ) {
            let neighbours = count.map(|count| Neighbours { count, decay: 0.5 });
            let ours = Mutate {
                table: table.clone(),
                keys: Arc::new(keys.clone()),
                priorities: Arc::new(priorities.clone()),
                if_version: if_version.clone(),
                deletes: deletes.clone(),
                neighbours,
            };
            let theirs = Generated { table, keys: keys.clone(), priorities: priorities.clone(), if_version, deletes, neighbours };
            let bytes = ours.encode_to_vec();
            prop_assert_eq!(&bytes, &theirs.encode_to_vec());
            // In pieces of any size, as frames deliver it.
            let mut pieces = std::collections::VecDeque::from_iter(bytes.chunks(cut));
            let again = Mutate::decode(Pieces(&mut pieces)).unwrap();
            prop_assert_eq!((&again.table, &again.keys, &again.deletes), (&ours.table, &ours.keys, &ours.deletes));
            prop_assert_eq!(bits(&again.priorities), bits(&priorities));
            prop_assert_eq!((&again.if_version, again.neighbours), (&ours.if_version, ours.neighbours));
            let unpacked = Unpacked { keys: keys.clone(), priorities: priorities.clone() }.encode_to_vec();
            let loose = Mutate::decode(&unpacked[..]).unwrap();
            prop_assert_eq!((&*loose.keys, bits(&loose.priorities)), (&keys, bits(&priorities)));
            // A truncated message is an error, or what the generated code reads too.
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(Mutate::decode(short).is_ok(), Generated::decode(short).is_ok());
        }
    }

    #[test]
    fn a_length_that_no_message_has_sets_no_memory_aside() {
        // Field 2, packed, of 2^40 bytes; and of 9 bytes, which is no multiple of 8.
        for bytes in [
            &[0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 1, 2, 3, 4, 5, 6, 7][..],
            &[0x12, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        ] {
            assert!(Mutate::decode(bytes).is_err());
        }
    }

    /// Bytes in several pieces.
    struct Pieces<'a, 'b>(&'a mut std::collections::VecDeque<&'b [u8]>);

    impl Buf for Pieces<'_, '_> {
        fn remaining(&self) -> usize {
            self.0.iter().map(|piece| piece.len()).sum()
        }

        fn chunk(&self) -> &[u8] {
            self.0.front().copied().unwrap_or_default()
        }

        fn advance(&mut self, mut n: usize) {
            while n > 0 {
                let piece = self.0.front_mut().expect("no more is advanced by than there is");
                let here = n.min(piece.len());
                *piece = &piece[here..];
                n -= here;
                if piece.is_empty() {
                    self.0.pop_front();
                }
            }
        }
    }
}
