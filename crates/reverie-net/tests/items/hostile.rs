//! Many messages that were tampered with: none panics, none makes the server hold more than it may, and what is taken
//! can be gathered.

use super::support::{Pipe, Random, Writers};
use bytes::Bytes;
use prost::Message;
use reverie_core::batch::BatchLayout;
use reverie_core::batch::{BatchOptions, Ragged, plan};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::item::Item;
use reverie_net::convert::batch::{decode_head, encode_head};
use reverie_net::convert::numbers::{self, Number};
use reverie_net::items::{Decoder, DecoderLimits, Row};
use reverie_net::proto::{self, client_message, server_message};
use std::mem::MaybeUninit;
use std::sync::Arc;

const LIMITS: DecoderLimits = DecoderLimits { max_chunk_bytes: 1 << 16, max_named: 64, max_held_bytes: 1 << 20 };

type Session = Vec<(proto::Insert, Bytes)>;

/// Messages of short sessions of all writers.
fn sessions() -> Vec<Session> {
    let session = |seed: u64| {
        let compression = if seed.is_multiple_of(2) { Compression::Lz4 } else { Compression::None };
        let (mut writers, mut pipe) = (Writers::new(compression), Pipe::new(400));
        for at in 0..4 {
            let items = match (seed + at) % 3 {
                0 => writers.rows(2, seed as usize % 3),
                1 => writers.transitions(at == 3),
                _ => {
                    (0..3).for_each(|step| writers.step([true, step != 1, seed.is_multiple_of(4)], 2, step == 2));
                    writers.trajectory([2, 1, 0], 1 + seed as usize % 2, seed.is_multiple_of(5)).unwrap_or_default()
                }
            };
            if !items.is_empty() {
                pipe.push(0, &items).unwrap();
                pipe.send().unwrap();
            }
        }
        writers.close();
        drop(writers);
        pipe.encoder.tidy(1 << 16);
        pipe.send().unwrap();
        let decode = |(bytes, bulk): &(Vec<u8>, Bytes)| (proto::Insert::decode(&bytes[..]).unwrap(), bulk.clone());
        pipe.sent.iter().map(decode).collect()
    };
    (0..12).map(session).collect()
}

/// A batch of each item: what a table took must be gathered, or refused.
fn gather(item: &Item) {
    for ragged in [Ragged::Refuse, Ragged::Values] {
        let Ok(plan) = plan(std::slice::from_ref(item), &BatchOptions { ragged, columns: None }) else { continue };
        if plan.outputs.iter().map(|output| output.bytes() as u64).sum::<u64>() > 1 << 22 {
            continue;
        }
        let mut arrays: Vec<Vec<MaybeUninit<u8>>> =
            plan.outputs.iter().map(|output| vec![MaybeUninit::uninit(); output.bytes()]).collect();
        let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(Vec::as_mut_slice).collect();
        // A packed form that does not unpack shows here, as an error.
        let _ = plan.gather(std::slice::from_ref(item), &mut out);
    }
}

/// Decodes a session; stops at the first refusal, as a connection does. True if nothing was refused.
fn feed(session: &[(proto::Insert, Bytes)]) -> bool {
    let meter = Arc::new(Meter::new());
    let mut decoder = Decoder::new(Arc::clone(&meter), LIMITS, Arc::default());
    for (message, bulk) in session {
        let Ok(arrived) = decoder.insert(message.clone(), bulk) else { return false };
        arrived.iter().flat_map(|arrived| &arrived.items).for_each(|(item, _)| gather(item));
        drop(arrived);
        assert!(meter.live_bytes() <= LIMITS.max_held_bytes + (LIMITS.max_chunk_bytes << 1));
    }
    true
}

/// A number near those that matter.
fn number(random: &mut Random) -> u64 {
    let near = [0, 1, 2, 7, 8, 63, 64, 255, 1 << 16, 1 << 24, 1 << 31, u64::from(u32::MAX), 1 << 40, u64::MAX];
    let base = near[random.below(near.len())];
    base.wrapping_add(random.below(3) as u64).wrapping_sub(1)
}

fn pick<'a, T>(random: &mut Random, all: &'a mut [T]) -> Option<&'a mut T> {
    let len = all.len();
    (len > 0).then(|| &mut all[random.below(len)])
}

/// Changes one number of a list.
fn change<T: Number>(random: &mut Random, list: &mut Bytes, number: T) {
    let mut numbers = numbers::decode(list, "numbers").unwrap();
    pick(random, &mut numbers).into_iter().for_each(|one| *one = number);
    *list = numbers::encode(&numbers);
}

/// Changes one field somewhere in the message.
fn edit(message: &mut proto::Insert, random: &mut Random) {
    let value = number(random);
    let small = value as u32;
    match random.below(8) {
        0..3 => {
            if let Some(chunk) = pick(random, &mut message.chunks) {
                edit_chunk(chunk, value, random);
            }
        }
        3..5 => {
            if let Some(column) = pick(random, &mut message.patterns).and_then(|p| pick(random, &mut p.columns)) {
                edit_column(column, small, random);
            }
        }
        5 => {
            if let Some(part) = pick(random, &mut message.bodies).and_then(|body| pick(random, &mut body.parts)) {
                match random.below(3) {
                    0 => change(random, &mut part.chunks, value),
                    1 => change(random, &mut part.starts, value as i64),
                    _ => part.starts.truncate(part.starts.len().saturating_sub(8)),
                }
            }
        }
        6 => {
            let mut rows: Vec<Row> = Row::all(&message.items).unwrap().iter().map(Row::read).collect();
            if let Some(row) = pick(random, &mut rows) {
                match random.below(5) {
                    0 => row.pattern = small,
                    1 => row.body = value,
                    2 => row.anchor = small,
                    3 => row.episode = small,
                    _ => drop(rows.pop()),
                }
            }
            let mut items = Vec::new();
            rows.iter().for_each(|row| row.put(&mut items));
            message.items = items.into();
        }
        _ => match random.below(4) {
            0 => message.first_id = value,
            1 => message.released = numbers::encode(&[value]),
            2 => message.released_patterns.push(small),
            _ => {
                let (items, skipped) = (number(random) as u32, number(random) as u32);
                message.runs.push(proto::InsertRun { table: 0, requests: small, items, skipped });
            }
        },
    }
}

fn edit_chunk(chunk: &mut proto::ChunkCells, value: u64, random: &mut Random) {
    let small = value as u32;
    match (random.below(9), &mut chunk.layout) {
        (0, _) => chunk.chunk = value,
        (1, _) => chunk.first = small,
        (2, _) => chunk.cells = small,
        (3, _) => chunk.offset = value,
        (4, _) => chunk.lead = vec![small; random.below(4)],
        (5, _) => chunk.packed = Some(proto::PackedRange { offset: 0, size_bytes: value % 200 }),
        (6, _) => match pick(random, &mut chunk.columns) {
            Some(column) => match random.below(5) {
                0 => column.column = small,
                1 => column.first = small,
                2 => column.cells = small,
                3 => column.offset = value,
                _ => column.holes = vec![small as u8; random.below(3)],
            },
            None => chunk.columns.push(proto::ColumnCells { cells: small, ..Default::default() }),
        },
        (_, Some(layout)) => match random.below(5) {
            0 => pick(random, &mut layout.widths).into_iter().for_each(|width| *width = small),
            1 => pick(random, &mut layout.itemsizes).into_iter().for_each(|itemsize| *itemsize = small),
            2 => layout.capacity = small,
            3 => layout.interleaved = !layout.interleaved,
            _ => layout.packable = !layout.packable,
        },
        (_, None) => chunk.layout = Some(Box::new(proto::ChunkLayout { capacity: small, ..Default::default() })),
    }
}

fn edit_column(column: &mut proto::PatternColumn, small: u32, random: &mut Random) {
    use proto::pattern_column::Cells;
    let other = number(random) as u32;
    match random.below(7) {
        0 => column.part = small,
        1 => column.column = small,
        2 => column.squeeze = !column.squeeze,
        3 => column.stack_axis = small,
        4 => column.spec.iter_mut().for_each(|spec| spec.shape = vec![u64::from(small); random.below(3)]),
        5 => {
            let cells = proto::CellRange { start: small as i32, step: other as i32 % 3, len: other % 100 };
            column.cells = Some(Cells::Range(cells));
        }
        _ => {
            column.cells = Some(Cells::List(proto::CellList { cells: numbers::encode(&[small as i32, other as i32]) }))
        }
    }
}

/// Changes bytes as they are on the way.
fn garble(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            _ => bytes.insert(at, random.below(256) as u8),
        }
    }
}

#[test]
fn inserts_with_edited_fields_are_refused_or_can_be_gathered() {
    let (sessions, mut random) = (sessions(), Random::new(1));
    assert!(sessions.iter().all(|session| feed(session)), "untouched they are sound");
    let (mut refused, inputs) = (0, 45_000);
    for input in 0..inputs {
        let mut session = sessions[input % sessions.len()].clone();
        let at = random.below(session.len());
        (0..=random.below(2)).for_each(|_| edit(&mut session[at].0, &mut random));
        refused += usize::from(!feed(&session[..=at]));
    }
    assert!(refused > inputs / 3 && refused < inputs, "{refused} of {inputs} edits were seen");
}

#[test]
fn inserts_with_garbled_bytes_are_refused_or_can_be_gathered() {
    let (sessions, mut random) = (sessions(), Random::new(2));
    let encoded: Vec<Vec<Vec<u8>>> =
        sessions.iter().map(|session| session.iter().map(|(message, _)| message.encode_to_vec()).collect()).collect();
    let (mut undecoded, mut refused, inputs) = (0, 0, 45_000);
    for input in 0..inputs {
        let which = input % sessions.len();
        let at = random.below(sessions[which].len());
        let mut bytes = encoded[which][at].clone();
        garble(&mut bytes, &mut random);
        let Ok(message) = proto::Insert::decode(&bytes[..]) else {
            undecoded += 1;
            continue;
        };
        let mut session = sessions[which][..=at].to_vec();
        session[at].0 = message;
        refused += usize::from(!feed(&session));
    }
    let seen = format!("{undecoded} of {inputs} are no messages, {refused} are refused");
    let taken = inputs - undecoded - refused;
    assert!([undecoded, refused, taken].iter().all(|n| *n > inputs / 20), "{seen}");
}

#[test]
fn messages_with_garbled_bytes_decode_or_are_refused() {
    let (sessions, mut random) = (sessions(), Random::new(3));
    let insert = |message: &proto::Insert| {
        let body = Some(client_message::Body::Insert(message.clone()));
        proto::ClientMessage { freed_slots: vec![1, 2], body, ..Default::default() }.encode_to_vec()
    };
    let clients: Vec<Vec<u8>> = sessions.iter().flatten().map(|(message, _)| insert(message)).collect();
    let servers: Vec<Vec<u8>> = [
        server_message::Body::Inserted(proto::Inserted { first_id: 1, requests: 2, keys: vec![5, -1] }),
        server_message::Body::Part(proto::Part { id: 1, offset: 3, data: vec![1; 9].into() }),
        server_message::Body::Batch(proto::Batch { new_head: Some(head()), num_draws: 3, ..Default::default() }),
        server_message::Body::Goodbye(proto::Goodbye::default()),
    ]
    .map(|body| proto::ServerMessage { body: Some(body) }.encode_to_vec())
    .to_vec();
    let (mut decoded, inputs) = ([0, 0], 45_000);
    for _ in 0..inputs {
        let mut bytes = clients[random.below(clients.len())].clone();
        garble(&mut bytes, &mut random);
        decoded[0] += usize::from(proto::ClientMessage::decode(&bytes[..]).is_ok());
        let mut bytes = servers[random.below(servers.len())].clone();
        garble(&mut bytes, &mut random);
        decoded[1] += usize::from(proto::ServerMessage::decode(&bytes[..]).is_ok());
    }
    assert!(decoded.iter().all(|n| (inputs / 10..inputs * 9 / 10).contains(n)), "{decoded:?} of {inputs} decode");
}

fn head() -> proto::BatchHead {
    let (mut writers, mut pipe) = (Writers::new(Compression::None), Pipe::new(1 << 16));
    pipe.push(0, &writers.rows(2, 1)).unwrap();
    pipe.send().unwrap();
    let items: Vec<Item> = pipe.arrived[0].items.iter().map(|(item, _)| item.clone()).collect();
    let plan = plan(&items, &BatchOptions { ragged: Ragged::Pad, columns: None }).unwrap();
    encode_head(&plan.outputs, &plan.structure, plan.num_columns, true)
}

#[test]
fn heads_of_batches_with_garbled_bytes_are_refused_or_their_arrays_can_be_laid_out() {
    let (bytes, mut random) = (head().encode_to_vec(), Random::new(4));
    let (mut laid_out, inputs) = (0, 40_000);
    for _ in 0..inputs {
        let mut bytes = bytes.clone();
        garble(&mut bytes, &mut random);
        let Some(head) = proto::BatchHead::decode(&bytes[..]).ok().and_then(|head| decode_head(head).ok()) else {
            continue;
        };
        let Ok(layout) = BatchLayout::new(random.below(9), &head.outputs) else { continue };
        let within = layout.outputs.iter().zip(&head.outputs).all(|(range, output)| range.len() == output.bytes());
        assert!(within && layout.outputs.iter().all(|range| range.end <= layout.size_bytes));
        assert_eq!(head.structure.num_leaves(), head.num_columns);
        laid_out += 1;
    }
    assert!(laid_out > inputs / 100 && laid_out < inputs, "{laid_out} of {inputs} were laid out");
}
