//! Writes the seeds of what comes over the network: sessions of all writers, heads of batches, messages both ways.

#[path = "../../crates/reverie-net/tests/support/mod.rs"]
mod support;

use prost::Message;
use reverie_core::batch::{BatchOptions, Ragged, plan};
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_net::convert::batch::encode_head;
use reverie_net::proto::{self, client_message, server_message};
use std::path::PathBuf;
use support::{Pipe, Writers};

fn put(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)
}

/// A short session that begins with another writer for each `kind`.
fn session(kind: u64, compression: Compression) -> Pipe {
    let (mut writers, mut pipe) = (Writers::new(compression), Pipe::new(400));
    for at in 0..4 {
        let items = match (kind + at) % 3 {
            0 => writers.rows(2, kind as usize % 3),
            1 => writers.transitions(at == 3),
            _ => {
                (0..3).for_each(|step| writers.step([true, step != 1, kind != 1], 2, step == 2));
                writers.trajectory([2, 1, 0], 1 + kind as usize % 2, kind == 2).unwrap_or_default()
            }
        };
        if !items.is_empty() {
            pipe.push(0, &items).expect("sound items");
            pipe.send().expect("sound messages");
        }
    }
    writers.close();
    drop(writers);
    pipe.encoder.tidy(1 << 16);
    pipe.send().expect("sound messages");
    pipe
}

fn main() -> std::io::Result<()> {
    for kind in 0..3 {
        for (name, compression) in [("raw", Compression::None), ("packed", Compression::Lz4)] {
            let (pipe, mut frames) = (session(kind, compression), Vec::new());
            for (message, bulk) in &pipe.sent {
                frames.extend((message.len() as u16).to_le_bytes());
                frames.extend((bulk.len() as u16).to_le_bytes());
                frames.extend_from_slice(message);
                frames.extend_from_slice(bulk);
            }
            put("insert", &format!("{kind}-{name}"), &frames)?;
            let insert = proto::Insert::decode(&pipe.sent[0].0[..])?;
            let message =
                proto::ClientMessage { body: Some(client_message::Body::Insert(insert)), ..Default::default() };
            for target in ["message", "head"] {
                put(target, &format!("{kind}-{name}"), &message.encode_to_vec())?;
            }
        }
        let pipe = session(kind, Compression::None);
        let items: Vec<Item> =
            pipe.arrived.iter().flat_map(|arrived| &arrived.items).map(|(item, _)| item.clone()).take(1).collect();
        for (name, ragged) in [("plain", Ragged::Refuse), ("padded", Ragged::Pad), ("values", Ragged::Values)] {
            let plan = plan(&items, &BatchOptions { ragged, columns: None }).expect("one item is a batch");
            let head = encode_head(&plan.outputs, &plan.structure, plan.num_columns, false);
            put("batch_head", &format!("{kind}-{name}"), &[&[3], &head.encode_to_vec()[..]].concat())?;
            let batch = proto::Batch { id: 1, new_head: Some(head), num_draws: 3, last: true, ..Default::default() };
            let message = proto::ServerMessage { body: Some(server_message::Body::Batch(batch)) };
            put("message", &format!("batch-{kind}-{name}"), &message.encode_to_vec())?;
        }
    }
    Ok(())
}
