//! The memory that a message will take, computed before it is decoded.
//!
//! A field of two bytes may become an entry of a hundred, so that a bound on the encoded size alone would let 64 MiB
//! become gigabytes.

use crate::proto::{self, MAX_MESSAGE_BYTES};
use prost::Message;

/// The memory that the entries of a message's lists may take together.
/// Numbers in lists are not counted: each takes at most eight times its encoded size.
const MOST_BYTES: usize = MAX_MESSAGE_BYTES;

/// The description of a message type for weighing.
pub(crate) struct Kind {
    /// Bytes of one entry in a list; 0 for a single field, which is part of its message.
    size: usize,
    /// Fields that are lists of messages or texts, or have such lists in them.
    fields: &'static [(u32, Kind)],
}

const fn each<T>(fields: &'static [(u32, Kind)]) -> Kind {
    Kind { size: size_of::<T>(), fields }
}

const fn one(fields: &'static [(u32, Kind)]) -> Kind {
    Kind { size: 0, fields }
}

/// The messages that clients send. A test compares this with the proto.
static CLIENT_MESSAGE: Kind = one(&[(4, one(INSERT)), (5, one(REQUEST))]);

const INSERT: &[(u32, Kind)] = &[
    (2, each::<proto::InsertRun>(&[])),
    (3, each::<proto::PatternDef>(&[(2, one(STRUCTURE)), (3, each::<proto::PatternColumn>(&[]))])),
    (4, each::<proto::ChunkCells>(&[(6, each::<proto::ColumnCells>(&[]))])),
    (5, each::<proto::BodyDef>(&[(2, each::<proto::BodyPart>(&[]))])),
];
const STRUCTURE: &[(u32, Kind)] = &[(1, each::<proto::Node>(&[(1, one(DICT)), (4, one(RECORD))]))];
const DICT: &[(u32, Kind)] = &[(1, each::<proto::FieldKey>(&[]))];
const RECORD: &[(u32, Kind)] = &[(4, each::<String>(&[]))];
const REQUEST: &[(u32, Kind)] = &[
    (3, one(&[(1, each::<proto::SamplePart>(&[])), (2, one(READING))])),
    (4, one(&[(3, one(READING))])),
    (12, one(&[(2, each::<proto::Condition>(&[]))])),
    (13, one(&[(3, each::<proto::Condition>(&[]))])),
];
const READING: &[(u32, Kind)] = &[(1, each::<String>(&[]))];

/// A message that peers send.
pub(crate) trait Incoming: Message + Default + 'static {
    /// Its description; `None` for messages of a server, which the client chose to trust.
    const KIND: Option<&'static Kind> = None;
}

impl Incoming for proto::ClientMessage {
    const KIND: Option<&'static Kind> = Some(&CLIENT_MESSAGE);
}
impl Incoming for proto::DescribeRequest {}
impl Incoming for proto::Description {}
impl Incoming for proto::ServerMessage {}

/// Refuses a message of `len` bytes that would take too much memory. It begins in the first piece.
/// Malformed bytes are left to the decoder.
pub(crate) fn check<'a, M: Incoming>(pieces: impl Iterator<Item = &'a [u8]>, len: usize) -> Result<(), String> {
    let Some(kind) = M::KIND else { return Ok(()) };
    let mut bytes = Bytes { here: &[], pieces, at: 0 };
    let mut left = MOST_BYTES;
    match weigh(&mut bytes, len, kind, &mut left) {
        Err(Stop::TooMuch) => Err(format!(
            "a message whose lists would take more than {MOST_BYTES} bytes of memory: send fewer at a time"
        )),
        Err(Stop::Group) => Err("a message with a group, which no field of this protocol is".to_owned()),
        Ok(()) | Err(Stop::Broken) => Ok(()),
    }
}

/// The reason why weighing ended early.
enum Stop {
    TooMuch,
    /// Groups nest without bound, and the decoder skips them in a way that is not followed here.
    Group,
    /// Malformed: the decoder stops here, too.
    Broken,
}

fn weigh<'a>(
    bytes: &mut Bytes<'a, impl Iterator<Item = &'a [u8]>>,
    end: usize,
    kind: &Kind,
    left: &mut usize,
) -> Result<(), Stop> {
    while bytes.at < end {
        let key = bytes.varint()?;
        match key & 7 {
            0 => drop(bytes.varint()?),
            1 => bytes.skip(8)?,
            5 => bytes.skip(4)?,
            2 => {
                let len = usize::try_from(bytes.varint()?).map_err(|_| Stop::Broken)?;
                let inner = bytes.at.checked_add(len).filter(|inner| *inner <= end).ok_or(Stop::Broken)?;
                match kind.fields.iter().find(|(number, _)| u64::from(*number) == key >> 3) {
                    None => bytes.skip(len)?,
                    Some((_, kind)) => {
                        *left = left.checked_sub(kind.size).ok_or(Stop::TooMuch)?;
                        if kind.fields.is_empty() { bytes.skip(len)? } else { weigh(bytes, inner, kind, left)? }
                    }
                }
            }
            3 => return Err(Stop::Group),
            _ => return Err(Stop::Broken),
        }
    }
    if bytes.at == end { Ok(()) } else { Err(Stop::Broken) }
}

/// A message's bytes in order.
struct Bytes<'a, I> {
    here: &'a [u8],
    pieces: I,
    at: usize,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Bytes<'a, I> {
    fn skip(&mut self, mut count: usize) -> Result<(), Stop> {
        self.at += count;
        while count > self.here.len() {
            count -= self.here.len();
            self.here = self.pieces.next().ok_or(Stop::Broken)?;
        }
        self.here = &self.here[count..];
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            while self.here.is_empty() {
                self.here = self.pieces.next().ok_or(Stop::Broken)?;
            }
            let byte = self.here[0];
            (self.here, self.at) = (&self.here[1..], self.at + 1);
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(Stop::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FileDescriptorSet};

    fn check_whole(message: &[u8]) -> Result<(), String> {
        check::<proto::ClientMessage>([message].into_iter(), message.len())
    }

    /// A field with these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        field.extend(bytes);
        field
    }

    #[test]
    fn every_list_of_messages_or_texts_in_the_proto_is_weighed() {
        let set = FileDescriptorSet::decode(proto::DESCRIPTORS).unwrap();
        let find = |name: &str| -> DescriptorProto {
            let name = name.rsplit('.').next().unwrap();
            set.file.iter().flat_map(|file| &file.message_type).find(|message| message.name() == name).unwrap().clone()
        };
        // Every list below must be described, and nothing else.
        fn compare(message: &DescriptorProto, kind: Option<&Kind>, find: &dyn Fn(&str) -> DescriptorProto) -> usize {
            let mut lists = 0;
            for field in &message.field {
                let (number, repeated) = (field.number() as u32, field.label() == Label::Repeated);
                let known = kind.and_then(|kind| kind.fields.iter().find(|(known, _)| *known == number));
                let below = match field.r#type() {
                    Type::Message => compare(&find(field.type_name()), known.map(|(_, kind)| kind), find),
                    _ => 0,
                };
                let counts = repeated && matches!(field.r#type(), Type::Message | Type::String | Type::Bytes);
                assert_eq!(known.is_some(), counts || below > 0, "{}.{}", message.name(), field.name());
                assert!(known.is_none_or(|(_, kind)| (kind.size > 0) == counts), "{}", field.name());
                lists += below + usize::from(counts);
            }
            lists
        }
        assert_eq!(compare(&find("ClientMessage"), Some(&CLIENT_MESSAGE), &find), 15);
    }

    #[test]
    fn a_message_that_would_grow_is_refused_before_it_is_decoded_and_one_that_would_not_is_taken() {
        for (list, size) in [(2, size_of::<proto::InsertRun>()), (4, size_of::<proto::ChunkCells>())] {
            let most = MOST_BYTES / size;
            let message = |entries: usize| field(4, &field(list, &[]).repeat(entries));
            check_whole(&message(most)).unwrap();
            assert!(check_whole(&message(most + 1)).unwrap_err().contains("send fewer"));
        }
        let columns = field(4, &field(4, &field(6, &[]).repeat(1 << 20)).repeat(2));
        assert!(check_whole(&columns).is_err(), "lists in lists count, too");
        let texts = field(5, &field(3, &field(2, &field(1, &[]).repeat(3 << 20))));
        assert!(check_whole(&texts).is_err());
        // A megabyte in one field does not grow.
        check_whole(&field(4, &field(9, &field(1, &[0; 1 << 20])))).unwrap();
    }

    #[test]
    fn a_message_in_pieces_weighs_what_it_weighs_whole() {
        let message = [vec![8, 1], field(4, &field(4, &[]).repeat(MOST_BYTES / size_of::<proto::ChunkCells>() + 1))];
        let (message, behind) = (message.concat(), [0x1f; 9]);
        for size in [1, 2, 3, 1000] {
            let pieces = || message.chunks(size).chain([&behind[..]]);
            assert!(check::<proto::ClientMessage>(pieces(), message.len()).is_err(), "{size}");
            // Truncated, it is malformed, which the decoder reports.
            assert!(check::<proto::ClientMessage>(pieces(), 1000).is_ok());
        }
    }

    #[test]
    fn what_hides_from_being_weighed_is_refused_or_left_to_the_decoder() {
        let growing = field(4, &field(4, &[]).repeat(1 << 20));
        assert!(check_whole(&[&[0x7b][..], &growing].concat()).is_err(), "behind a group");
        for broken in [&[0x22, 0xff][..], &[0x80; 11], &[0x27], &[0x22, 5, 1]] {
            check_whole(broken).unwrap();
            assert!(proto::ClientMessage::decode(broken).is_err(), "{broken:?}");
        }
    }
}
