//! Writers whose items go through the encoder, as bytes, into the decoder.
#![allow(dead_code)]

use bytes::Bytes;
use prost::Message;
use reverie_core::append::{
    ColumnCells, ItemColumn, RightEnds, RowWriter, Sink, StepWriter, TransitionOptions, TransitionStep,
    TransitionWriter, WriterOptions,
};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::item::{self, Item};
use reverie_core::spec::{ColumnSpec, DType, Schema, Signature, Structure};
use reverie_core::table::{Inserts, Keys, Priority, Ticket};
use reverie_core::{Error, Result};
use reverie_net::bulk::BulkSink;
use reverie_net::head;
use reverie_net::items::{ArrivedInsert, Decoder, DecoderLimits, Encoder, Episodes, PushOutcome};
use reverie_net::proto::{self, ClientMessage, client_message};
use std::collections::VecDeque;
use std::sync::Arc;

/// A sink that accepts everything. Its tables are never asked for.
#[derive(Default)]
pub struct NullSink {
    meter: Arc<Meter>,
}

impl Sink for NullSink {
    fn insert(&self, _table: &str, _items: Inserts) -> Result<Ticket<Keys>> {
        Ok(Ticket::done(Ok(Keys::new())))
    }

    fn check(&self, _table: &str, _items: &[(Item, Priority)]) -> Result<()> {
        Ok(())
    }

    fn check_priority(&self, _table: &str, _priority: Priority) -> Result<()> {
        Ok(())
    }

    fn signature(&self, _table: &str) -> Result<Option<Signature>> {
        Ok(None)
    }

    fn wait_reason(&self, _table: &str) -> Ticket<String> {
        Ticket::done(Ok("no request waits".to_owned()))
    }

    fn compression(&self, _table: &str) -> Result<Compression> {
        Ok(Compression::None)
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

/// Bulk bytes in memory.
#[derive(Default)]
pub struct Inline(pub Vec<u8>);

impl BulkSink for Inline {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

pub fn spec(path: &str, dtype: DType, shape: &[usize]) -> ColumnSpec {
    ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() }
}

pub fn schema(columns: Vec<ColumnSpec>) -> Schema {
    let structure = Structure::List(vec![Structure::Leaf; columns.len()]);
    Schema { columns, structure }
}

/// Bytes that can be packed, and show where they belong.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(31) as usize + at / 16) as u8).collect()
}

/// The content of an item: its cells, column by column.
pub type Content = Vec<Vec<Vec<u8>>>;

pub fn content(item: &Item) -> Content {
    let cells = |column: &item::PatternColumn| {
        let cell = |relative| {
            let (chunk, cell) = item.locate(column.part, relative).expect("the body has the cell");
            assert!(chunk.has(column.column as usize, cell));
            chunk.read().unwrap().cell(column.column as usize, cell).expect("it was published").to_vec()
        };
        column.cells.iter().map(cell).collect()
    };
    item.pattern.columns.iter().map(cells).collect()
}

/// Three writers of different kinds.
pub struct Writers {
    sink: Arc<dyn Sink>,
    rows: RowWriter,
    steps: StepWriter,
    transitions: TransitionWriter,
    count: u64,
}

pub const ENVS: usize = 2;

impl Writers {
    pub fn new(compression: Compression) -> Self {
        let sink: Arc<dyn Sink> = Arc::new(NullSink::default());
        let options = WriterOptions { keep_alive: 6, chunk_length: Some(4), compression };
        let mut steps = StepWriter::new(sink.clone(), options).unwrap();
        steps
            .configure("1", WriterOptions { keep_alive: 9, chunk_length: Some(3), compression: Compression::None })
            .unwrap();
        let transition = TransitionOptions {
            num_envs: ENVS,
            n_step: 2,
            discount: 0.9,
            frame_stack: Some(2),
            stack_axis: 0,
            right_ends: RightEnds::NextAppend,
            priority_eps: 0.0,
            priority_clip: f64::INFINITY,
            priority_unit: 1.0,
            priority: Priority::Max,
            compression,
        };
        let leaf = |path: &str, shape: &[usize]| Schema {
            columns: vec![spec(path, DType::UInt8, shape)],
            structure: Structure::Leaf,
        };
        let transitions = TransitionWriter::new(&sink, transition, &leaf("", &[40]), &leaf("", &[]), None).unwrap();
        Self { rows: RowWriter::new(sink.clone(), compression, true), sink, steps, transitions, count: 0 }
    }

    pub fn meter(&self) -> &Arc<Meter> {
        self.sink.meter()
    }

    /// Rows of a scalar, a vector and text of that width.
    pub fn rows(&mut self, rows: usize, width: usize) -> Inserts {
        self.count += 1;
        let schema = Arc::new(schema(vec![
            spec("0", DType::Int64, &[]),
            spec("1", DType::Float32, &[3]),
            spec("2", DType::Str, &[2]),
        ]));
        let itemsizes = [(8, 8), (12, 4), (8 * width, 4 * width)];
        let bytes = itemsizes.map(|(size, _)| noise(self.count, size * rows));
        let cells: Vec<_> =
            bytes.iter().zip(itemsizes).map(|(bytes, (_, itemsize))| ColumnCells { itemsize, bytes }).collect();
        let items = self.rows.append(&schema, &cells, rows).unwrap();
        let priority =
            if self.count.is_multiple_of(3) { Priority::Default } else { Priority::Value(self.count as f64) };
        items.into_iter().map(|item| (item, priority)).collect()
    }

    /// A step with or without each of three columns, in two parts where asked.
    pub fn step(&mut self, given: [bool; 3], width: usize, partial: bool) {
        self.count += 1;
        let specs = [spec("0", DType::UInt8, &[64]), spec("1", DType::Float64, &[]), spec("2", DType::Bytes, &[])];
        let sizes = [(64, 1), (8, 8), (width, width)];
        let open = |column: usize, writer: &StepWriter| {
            writer.column(&column.to_string()).is_none_or(|column| !writer.written_in_open_step(column))
        };
        let chosen: Vec<usize> = (0..3).filter(|column| given[*column] && open(*column, &self.steps)).collect();
        if chosen.is_empty() {
            return;
        }
        let columns = self.steps.resolve(&schema(chosen.iter().map(|at| specs[*at].clone()).collect())).unwrap();
        let bytes: Vec<_> = chosen.iter().map(|at| noise(self.count, sizes[*at].0)).collect();
        let cells: Vec<_> =
            bytes.iter().zip(&chosen).map(|(bytes, at)| ColumnCells { itemsize: sizes[*at].1, bytes }).collect();
        self.steps.append(&columns, &cells, partial).unwrap();
    }

    /// An item over the last steps of each column that has them; `None` if no column does.
    pub fn trajectory(&mut self, lengths: [usize; 3], stride: usize, list: bool) -> Option<Inserts> {
        let last = self.steps.num_steps() as i64 + self.steps.base() as i64 - 1;
        let mut columns = Vec::new();
        for (name, length) in lengths.iter().enumerate() {
            let Some(column) = self.steps.column(&name.to_string()) else { continue };
            let first = last - ((length * stride) as i64 - stride as i64).max(0);
            let steps = || (0..*length).map(|at| first + (at * stride) as i64);
            if *length == 0 || first < 0 || steps().any(|step| self.steps.check_cell(column, step).is_err()) {
                continue;
            }
            let cells = match list {
                true => item::Cells::List((0..*length).rev().map(|at| (at * stride) as i32).collect()),
                false => item::Cells::Range { start: 0, step: stride as i32, len: *length as u32 },
            };
            columns.push(ItemColumn { column, start: first as u64, cells, squeeze: *length == 1 && !list });
        }
        let structure = Arc::new(Structure::List(vec![Structure::Leaf; columns.len()]));
        let item = (!columns.is_empty()).then(|| self.steps.item(&structure, &columns).unwrap())?;
        Some([(item, Priority::Value(0.5))].into_iter().collect())
    }

    pub fn end_episode(&mut self, clear: bool) {
        self.steps.end_episode(clear);
    }

    /// A step of all environments; the items that it completes.
    pub fn transitions(&mut self, end: bool) -> Inserts {
        self.count += 1;
        let (obs, action) = (noise(self.count, 40 * ENVS), noise(self.count, ENVS));
        let columns = [ColumnCells { itemsize: 1, bytes: &obs }, ColumnCells { itemsize: 1, bytes: &action }];
        let rewards = [self.count as f64; ENVS];
        let step = TransitionStep {
            columns: &columns,
            rewards: &rewards,
            terminated: &[end, false],
            truncated: &[false; ENVS],
            q_taken: None,
            bootstrap: None,
            final_obs: None,
            final_value: None,
        };
        self.transitions.append(&step).unwrap()
    }

    /// Closes all chunks and releases them.
    pub fn close(&mut self) {
        self.rows.close();
        self.steps.end_episode(true);
        self.transitions.finish(None).unwrap();
    }
}

/// A client's encoder and a server's decoder.
pub struct Pipe {
    pub encoder: Encoder,
    pub decoder: Decoder,
    pub meter: Arc<Meter>,
    pub next_id: u64,
    /// The bytes that an empty message has room for.
    pub room: u64,
    /// All that went over, as it went.
    pub sent: Vec<(Vec<u8>, Bytes)>,
    pub arrived: VecDeque<ArrivedInsert>,
}

impl Pipe {
    pub fn new(room: u64) -> Self {
        Self::with_limits(room, DecoderLimits::default())
    }

    pub fn with_limits(room: u64, limits: DecoderLimits) -> Self {
        let meter = Arc::new(Meter::new());
        let decoder = Decoder::new(Arc::clone(&meter), limits, Arc::new(Episodes::default()));
        Self {
            encoder: Encoder::default(),
            decoder,
            meter,
            next_id: 1,
            room,
            sent: Vec::new(),
            arrived: VecDeque::new(),
        }
    }

    /// Pushes a request, sending whatever has to go before.
    pub fn push(&mut self, table: u32, items: &Inserts) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut room = self.room.max(self.encoder.planned_bytes());
        for _ in 0..10_000 {
            match self.encoder.push(id, table, items, room)? {
                PushOutcome::Whole => return Ok(id),
                PushOutcome::NoRoom { needed } => {
                    assert!(self.encoder.planned_bytes() <= room);
                    room = self.room.max(needed);
                    self.send()?;
                }
            }
        }
        panic!("a request that never has room");
    }

    /// Sends the message that is being made, if there is one.
    pub fn send(&mut self) -> Result<()> {
        let (planned, mut bulk) = (self.encoder.planned_bytes(), Inline::default());
        let Some(message) = self.encoder.take(&mut bulk) else { return Ok(()) };
        assert_eq!(planned, bulk.len(), "what was planned is what was put");
        self.sent.push((message.encode_to_vec(), Bytes::from(bulk.0)));
        let whole = ClientMessage { body: Some(client_message::Body::Insert(message)), ..Default::default() };
        assert_eq!(head::decode(&whole.encode_to_vec()[..]), Ok(whole), "a server takes it");
        let (bytes, bulk) = self.sent.last().unwrap();
        let message = proto::Insert::decode(&bytes[..]).map_err(|error| Error::Protocol(error.to_string()))?;
        self.arrived.extend(self.decoder.insert(message, bulk)?);
        Ok(())
    }
}

/// Numbers that look random and are the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
