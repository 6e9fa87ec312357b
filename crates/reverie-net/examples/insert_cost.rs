//! The cost of an insert: `insert_cost none|grpc|shared-memory ITEMS BYTES` writes items of so many bytes, each a step
//! of its own, to a sink that drops them or to a server in this process, and prints the processor time of the writing
//! thread and of all others, in nanoseconds per item. Under callgrind: `--separate-threads=yes`.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::item::Item;
use reverie_core::spec::{ColumnSpec, DType, Schema, Signature, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Keys, Priority, TableOptions, Tables, Ticket};
use reverie_core::{Error, Result};
use reverie_net::client::Remote;
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::listen::Server;
use reverie_net::server;
use rustix::thread::ClockId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Items that are not confirmed at a time.
const IN_FLIGHT: usize = 2000;

/// Takes nothing.
struct NullSink(Arc<Meter>);

impl Sink for NullSink {
    fn insert(&self, _: &str, _: Inserts) -> Result<Ticket<Keys>> {
        Ok(Ticket::done(Ok(Keys::new())))
    }

    fn check(&self, _: &str, _: &[(Item, Priority)]) -> Result<()> {
        Ok(())
    }

    fn check_priority(&self, _: &str, _: Priority) -> Result<()> {
        Ok(())
    }

    fn signature(&self, _: &str) -> Result<Option<Signature>> {
        Ok(None)
    }

    fn wait_reason(&self, _: &str) -> Ticket<String> {
        Ticket::done(Ok(String::new()))
    }

    fn compression(&self, _: &str) -> Result<Compression> {
        Ok(Compression::None)
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.0
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, items, bytes] = arguments.as_slice() else {
        eprintln!("usage: insert_cost none|grpc|shared-memory ITEMS BYTES");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<usize>().map_err(|error| Error::InvalidArgument(error.to_string()));
    let (items, bytes) = (number(items)?, number(bytes)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![table()], None, &clock, 7)?);
    let server = Server::start(tables, server_options(way == "shared-memory"))?;
    let sink: Arc<dyn Sink> = match way.as_str() {
        "none" => Arc::new(NullSink(Arc::new(Meter::default()))),
        way => {
            let transport = if way == "grpc" { Transport::Grpc } else { Transport::SharedMemory };
            let address = server.address().to_string();
            let patience = Duration::from_secs(5);
            let grace = Duration::from_millis(50);
            let client = Remote::new(EndpointOptions {
                address,
                transport,
                token: None,
                tls: None,
                patience,
                grace,
                max_kept_bytes: KEPT_BYTES,
            })?;
            let mut described = client.describe();
            while described.wait(Duration::from_secs(1)).transpose()?.is_none() {}
            client
        }
    };
    // Warm: connections, chunks and tables have grown.
    write(&sink, items / 10 + IN_FLIGHT, bytes)?;
    let (thread, process) = (cpu(ClockId::ThreadCPUTime), cpu(ClockId::ProcessCPUTime));
    write(&sink, items, bytes)?;
    let thread = cpu(ClockId::ThreadCPUTime) - thread;
    let others = cpu(ClockId::ProcessCPUTime).saturating_sub(process + thread);
    let each = |time: Duration| time.as_nanos() / items as u128;
    println!("{way}: {} ns per item of {bytes} bytes in the writing thread, {} in others", each(thread), each(others));
    drop(sink);
    server.stop();
    Ok(())
}

fn cpu(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn write(sink: &Arc<dyn Sink>, items: usize, bytes: usize) -> Result<()> {
    let column = ColumnSpec { path: String::new(), dtype: DType::UInt8, shape: vec![bytes] };
    let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
    let mut writer = RowWriter::new(Arc::clone(sink), Compression::None, false);
    let cell = vec![7; bytes];
    let mut waiting: VecDeque<Ticket<Keys>> = VecDeque::new();
    for _ in 0..items {
        let cells = ColumnCells { itemsize: 1, bytes: &cell };
        let item = writer.append(&schema, &[cells], 1)?.remove(0);
        waiting.push_back(sink.insert("replay", Inserts::from_iter([(item, Priority::Value(1.0))]))?);
        while waiting.len() > IN_FLIGHT {
            settle(&mut waiting)?;
        }
    }
    while !waiting.is_empty() {
        settle(&mut waiting)?;
    }
    Ok(())
}

/// Waits for the oldest, for a while; releases what is done.
fn settle(waiting: &mut VecDeque<Ticket<Keys>>) -> Result<()> {
    let oldest = waiting.front_mut().expect("some wait");
    if oldest.wait(Duration::from_millis(10)).transpose()?.is_some() {
        waiting.pop_front();
    }
    while let Some(outcome) = waiting.front_mut().and_then(Ticket::poll) {
        outcome?;
        waiting.pop_front();
    }
    Ok(())
}

fn table() -> TableOptions {
    TableOptions {
        name: "replay".to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 10_000,
        limiter: Limiter::min_size(1).expect("1 is a size"),
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions: Vec::new(),
    }
}

fn server_options(local: bool) -> server::ServerOptions {
    server::ServerOptions {
        address: ([127, 0, 0, 1], 0).into(),
        token: None,
        tls: None,
        insecure: false,
        local,
        grace: Duration::from_secs(1),
        limits: server::Limits::default(),
        checkpoint: None,
        spans: false,
    }
}
