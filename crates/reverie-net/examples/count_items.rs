//! Encodes and decodes inserts in memory, for counting instructions:
//! `valgrind --tool=callgrind count_items [encode|wire|decode] [requests] [rows of a request] [requests of a message]`
//! stops after that station, so that the difference of two runs is a station's share.

use bytes::Bytes;
use prost::Message;
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use reverie_net::bulk::BulkSink;
use reverie_net::items::{Decoder, DecoderLimits, Encoder, PushOutcome};
use reverie_net::proto;
use std::error::Error;
use std::sync::Arc;

#[derive(Default)]
struct Inline(Vec<u8>);

impl BulkSink for Inline {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A transition of a small environment: 400 bytes in five columns.
fn schema() -> Arc<Schema> {
    let column = |path: &str, shape: &[usize]| ColumnSpec {
        path: path.to_owned(),
        dtype: DType::Float32,
        shape: shape.to_vec(),
    };
    let columns = vec![column("0", &[46]), column("1", &[6]), column("2", &[]), column("3", &[]), column("4", &[46])];
    Arc::new(Schema { columns, structure: Structure::Tuple(vec![Structure::Leaf; 5]) })
}

fn sink() -> Result<Arc<dyn Sink>, Box<dyn Error>> {
    let options = TableOptions {
        name: "t".to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 10,
        limiter: Limiter::min_size(1)?,
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions: Vec::new(),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    Ok(Arc::new(Tables::new(vec![options], None, &clock, 7)?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let until = arguments.first().map_or("decode", String::as_str);
    let (requests, rows, grouped) = (number(1, 10_000)?, number(2, 1)? as usize, number(3, 1)?);
    let (schema, sink) = (schema(), sink()?);
    let mut writer = RowWriter::new(sink, Compression::None, false);
    let bytes = vec![1_u8; 400 * rows];
    let sizes = [184, 24, 4, 4, 184];
    let columns = sizes.map(|size| ColumnCells { itemsize: 4, bytes: &bytes[..size * rows] });
    let mut encoder = Encoder::default();
    let mut decoder = Decoder::new(Arc::new(Meter::new()), DecoderLimits::default(), Arc::default());
    let (mut waiting, mut buffer, mut arrived) = (Vec::new(), Vec::new(), 0);
    for id in 1..=requests {
        let items = writer.append(&schema, &columns, rows)?;
        let items: Inserts = items.into_iter().map(|item| (item, Priority::Value(1.0))).collect();
        if until != "write" {
            assert_eq!(encoder.push(id, 0, &items, 16 << 20)?, PushOutcome::Whole);
        }
        waiting.push(items);
        if id % grouped == 0 && until != "write" {
            let mut bulk = Inline(std::mem::take(&mut buffer));
            let message = encoder.take(&mut bulk).ok_or("nothing to send")?;
            if until != "encode" {
                let sent = message.encode_to_vec();
                let bulk = Bytes::copy_from_slice(&bulk.0);
                let message = proto::Insert::decode(&sent[..])?;
                if until != "wire" {
                    arrived += decoder.insert(message, &bulk)?.len();
                }
            }
            buffer = bulk.0;
            buffer.clear();
            waiting.clear();
        }
    }
    println!("{until}: {requests} requests of {rows} rows, {arrived} arrived");
    Ok(())
}
