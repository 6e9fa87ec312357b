//! The memory that a client's message takes when it is decoded, measured for the messages that grow most.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use reverie_net::head::{self, MAX_HEAD_BYTES};
use reverie_net::proto::{self, ClientMessage, MAX_MESSAGE_BYTES};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the memory of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Adds to what is live; memory of another thread may be given back here.
fn count(more: usize, less: usize) {
    LIVE.set(LIVE.get().wrapping_add(more).wrapping_sub(less));
    PEAK.set(PEAK.get().max(if LIVE.get() > usize::MAX / 2 { 0 } else { LIVE.get() }));
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The most memory that decoding takes at a time, and whether the message is refused.
fn decoding(bytes: &[u8]) -> (usize, bool) {
    let before = LIVE.get();
    PEAK.set(before);
    let decoded = head::decode::<ClientMessage>(bytes);
    (PEAK.get() - before, decoded.is_err())
}

/// The schema.
struct Schema(FileDescriptorSet);

impl Schema {
    fn new() -> Self {
        Self(FileDescriptorSet::decode(proto::DESCRIPTORS).unwrap())
    }

    fn message(&self, name: &str) -> &DescriptorProto {
        let name = name.rsplit('.').next().unwrap();
        self.0.file.iter().flat_map(|file| &file.message_type).find(|message| message.name() == name).unwrap()
    }

    /// Small contents of a message: none, one field, and all fields.
    fn entries(&self, message: &DescriptorProto) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut entries = vec![Vec::new()];
        for of in &message.field {
            let contents = match of.r#type() {
                Type::Message => self.entries(self.message(of.type_name())),
                Type::String | Type::Bytes => vec![vec![b'a']],
                _ if of.label() == Label::Repeated => vec![vec![0]],
                // A number is part of its message.
                _ => continue,
            };
            all.extend(field(of, &contents[0]));
            entries.extend(contents.iter().map(|content| field(of, content)));
        }
        entries.push(all);
        entries
    }

    /// Contents of about `size` bytes, each of which repeats one thing.
    fn long(&self, message: &DescriptorProto, size: usize) -> Vec<Vec<u8>> {
        let mut contents = Vec::new();
        for of in &message.field {
            let repeated = of.label() == Label::Repeated;
            match of.r#type() {
                Type::Message => {
                    let inner = self.message(of.type_name());
                    contents.extend(self.long(inner, size - 8).iter().map(|content| field(of, content)));
                    if repeated {
                        let entries = self.entries(inner).into_iter().map(|entry| field(of, &entry));
                        contents.extend(entries.map(|entry| entry.repeat(size / entry.len())));
                    }
                }
                Type::String | Type::Bytes => {
                    contents.push(field(of, &vec![b'a'; size - 8]));
                    if repeated {
                        contents.extend(["", "a"].map(|text| field(of, text.as_bytes())).map(|entry| {
                            let count = size / entry.len();
                            entry.repeat(count)
                        }));
                    }
                }
                _ if repeated => contents.push(field(of, &vec![0; size - 8])),
                _ => {}
            }
        }
        contents
    }
}

/// A field with these bytes.
fn field(of: &FieldDescriptorProto, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::encode_varint(of.number() as u64 * 8 + 2, &mut field);
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend(bytes);
    field
}

#[test]
fn no_head_of_a_client_takes_more_memory_than_the_largest_message() {
    let schema = Schema::new();
    let mut most = 0;
    let messages = schema.long(schema.message("ClientMessage"), MAX_HEAD_BYTES - 64);
    for message in &messages {
        assert!(message.len() <= MAX_HEAD_BYTES);
        let (bytes, is_refused) = decoding(message);
        assert!(!is_refused, "{:?}", &message[..16]);
        assert!(bytes <= MAX_MESSAGE_BYTES, "{bytes} bytes of {:?}", &message[..16]);
        most = most.max(bytes);
    }
    println!("{} messages, {most} bytes at most: {} for one", messages.len(), most / MAX_HEAD_BYTES);
    assert!(messages.len() > 100 && most > 32 * MAX_HEAD_BYTES, "the worst of {} takes {most}", messages.len());
}

#[test]
fn a_head_that_is_too_long_is_refused_before_it_takes_more_memory_than_one_that_is_not() {
    let schema = Schema::new();
    for message in schema.long(schema.message("ClientMessage"), 8 * MAX_HEAD_BYTES) {
        let (bytes, is_refused) = decoding(&message);
        assert!(bytes <= MAX_MESSAGE_BYTES, "{bytes} bytes of {:?}", &message[..16]);
        // A message of one bytes field is taken: its bytes are copied once, or twice where they become a `Vec`.
        assert!(is_refused || bytes <= 2 * message.len() + 1024, "{bytes} bytes of {:?}", &message[..16]);
    }
}
