//! Items on their way through encoder and decoder.

use super::support::{Content, Pipe, Writers, content};
use proptest::prelude::*;
use prost::Message;
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_core::table::{Inserts, Priority};
use reverie_net::convert::numbers;
use reverie_net::proto;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug)]
enum WriterAction {
    Rows { rows: usize, width: usize },
    Step { given: [bool; 3], width: usize, partial: bool },
    Trajectory { lengths: [usize; 3], stride: usize, list: bool },
    Transitions { end: bool },
    EndEpisode { clear: bool },
    Send,
    Confirm,
    Repeat,
    Tidy,
}

fn acts() -> impl Strategy<Value = WriterAction> {
    prop_oneof![
        3 => (1_usize..80, 0_usize..3).prop_map(|(rows, width)| WriterAction::Rows { rows, width }),
        9 => (any::<[bool; 3]>(), 0_usize..4, any::<bool>())
            .prop_map(|(given, width, partial)| WriterAction::Step { given, width, partial }),
        6 => ([0_usize..5, 0..5, 0..3], 1_usize..3, any::<bool>())
            .prop_map(|(lengths, stride, list)| WriterAction::Trajectory { lengths, stride, list }),
        6 => proptest::bool::weighted(0.2).prop_map(|end| WriterAction::Transitions { end }),
        1 => any::<bool>().prop_map(|clear| WriterAction::EndEpisode { clear }),
        3 => Just(WriterAction::Send),
        1 => Just(WriterAction::Confirm),
        2 => Just(WriterAction::Repeat),
        1 => Just(WriterAction::Tidy),
    ]
}

/// An insert that was pushed: its number, its table, and the contents of its items.
struct ExpectedInsert {
    id: u64,
    table: u32,
    items: Vec<(Content, Item, Priority)>,
}

fn same_priority(left: &Priority, right: &Priority) -> bool {
    match (left, right) {
        (Priority::Max, Priority::Max) | (Priority::Default, Priority::Default) => true,
        (Priority::Value(left), Priority::Value(right)) => left.to_bits() == right.to_bits(),
        _ => false,
    }
}

/// The cells of the last message once more, alone.
fn repeat(pipe: &mut Pipe) {
    let Some((bytes, bulk)) = pipe.sent.last() else { return };
    let message = proto::Insert::decode(&bytes[..]).unwrap();
    let released: Vec<u64> = numbers::decode(&message.released, "numbers").unwrap();
    // Those that the message released were forgotten, and would be made again.
    let chunks = message.chunks.into_iter().filter(|chunk| !released.contains(&chunk.chunk)).collect();
    let arrived = pipe.decoder.insert(proto::Insert { chunks, ..Default::default() }, bulk).unwrap();
    assert!(arrived.is_empty());
}

fn run(program: &[WriterAction], compression: Compression, room: u64) {
    let (mut writers, mut pipe) = (Writers::new(compression), Pipe::new(room));
    let (mut expected, mut alive): (Vec<ExpectedInsert>, Vec<Inserts>) = (Vec::new(), Vec::new());
    for (number, act) in program.iter().enumerate() {
        let items = match act {
            WriterAction::Rows { rows, width } => writers.rows(*rows, *width),
            WriterAction::Trajectory { lengths, stride, list } => {
                writers.trajectory(*lengths, *stride, *list).unwrap_or_default()
            }
            WriterAction::Transitions { end } => writers.transitions(*end),
            WriterAction::Step { given, width, partial } => {
                writers.step(*given, *width, *partial);
                continue;
            }
            WriterAction::EndEpisode { clear } => {
                writers.end_episode(*clear);
                continue;
            }
            WriterAction::Send => {
                pipe.send().unwrap();
                continue;
            }
            WriterAction::Confirm => {
                alive.clear();
                continue;
            }
            WriterAction::Repeat => {
                repeat(&mut pipe);
                continue;
            }
            WriterAction::Tidy => {
                pipe.encoder.tidy(room);
                continue;
            }
        };
        if items.is_empty() {
            continue;
        }
        let table = number as u32 % 3;
        let id = pipe.push(table, &items).unwrap();
        let known = items.iter().map(|(item, priority)| (content(item), item.clone(), *priority)).collect();
        expected.push(ExpectedInsert { id, table, items: known });
        alive.push(items);
    }
    pipe.send().unwrap();
    compare(&expected, &pipe);
    // Chunks close and are packed; what arrived stays what it was.
    writers.close();
    for _ in 0..100 {
        pipe.encoder.tidy(u64::MAX);
        pipe.send().unwrap();
    }
    compare(&expected, &pipe);
    let packable = compression != Compression::None;
    let packed = pipe.arrived.iter().flat_map(|arrived| &arrived.items).flat_map(|(item, _)| item.chunks());
    let packed = packed.filter(|chunk| chunk.packed().is_some()).count();
    assert!(packable || packed == 0);
    // No item uses them any more: the server is notified.
    drop((expected, alive, writers));
    pipe.arrived.clear();
    for _ in 0..300 {
        pipe.encoder.tidy(u64::MAX);
        pipe.send().unwrap();
    }
    assert_eq!(pipe.meter.live_chunks(), 0, "chunks that were released are gone");
}

fn compare(expected: &[ExpectedInsert], pipe: &Pipe) {
    assert_eq!(expected.len(), pipe.arrived.len());
    let mut episodes = HashMap::new();
    for (want, got) in expected.iter().zip(&pipe.arrived) {
        assert_eq!((want.id, want.table, want.items.len()), (got.id, got.table, got.items.len()));
        for ((cells, item, priority), (arrived, arrived_priority)) in want.items.iter().zip(&got.items) {
            assert_eq!(content(arrived), *cells);
            assert_eq!(*arrived.pattern, *item.pattern);
            assert!(same_priority(priority, arrived_priority));
            assert_eq!(*episodes.entry(item.episode).or_insert(arrived.episode), arrived.episode);
        }
    }
    let different: HashSet<_> = episodes.values().collect();
    assert_eq!(different.len(), episodes.len(), "two episodes became one");
    assert!(episodes.get(&0).is_none_or(|alone| *alone == 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn items_arrive_as_they_were_written_whatever_the_messages(
        program in proptest::collection::vec(acts(), 1..60),
        compression in proptest::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        room in prop_oneof![Just(1_u64), 64_u64..2000, Just(1 << 20)],
    ) {
        run(&program, compression, room);
    }
}
