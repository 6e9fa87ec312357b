//! Batches from a server in another process, over shared memory and over gRPC: items per second, and the processor time
//! that a batch costs both processes, in user and in system mode, with their page faults. `paths [grpc|shared-memory] [seconds per row] [bytes per item ...]`
//!
//! Wall times mean something only on an idle machine; processor times also on a busy one.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::Ragged;
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::listen::Server;
use reverie_net::server;
use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BATCH: usize = 64;
const IN_FLIGHT: usize = 4;
/// Bytes of all items of a table: far more than the processor's caches.
const TABLE_BYTES: usize = 512 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut first = arguments.next();
    let transports: &[Transport] = match first.as_deref() {
        Some("grpc") => &[Transport::Grpc],
        Some("shared-memory") => &[Transport::SharedMemory],
        _ => &[Transport::SharedMemory, Transport::Grpc],
    };
    if transports.len() == 1 {
        first = arguments.next();
    }
    if first.as_deref() == Some("serve") {
        return serve(arguments.next().ok_or("serve wants the bytes of an item")?.parse()?);
    }
    let seconds: f64 = first.map_or(Ok(2.0), |first| first.parse())?;
    let mut sizes = arguments.map(|size| size.parse()).collect::<Result<Vec<usize>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![400, 4_000, 40_000, 400_000];
    }
    println!(
        "{:>8} {:>14} {:>12} {:>8} {:>26} {:>26}",
        "bytes", "transport", "items/s", "GB/s", "client us (+ sys), faults", "server us (+ sys), faults"
    );
    for size in sizes {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", &size.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        for transport in transports {
            row(address.trim(), child.id(), *transport, size, seconds)?;
        }
        drop(child.stdin.take());
        child.wait()?;
    }
    Ok(())
}

fn row(address: &str, server: u32, transport: Transport, size: usize, seconds: f64) -> Result<(), Box<dyn Error>> {
    let patience = Duration::from_secs(10);
    let (address, grace) = (address.to_owned(), Duration::from_millis(50));
    let client = Remote::new(EndpointOptions {
        address,
        transport,
        token: None,
        tls: None,
        patience,
        grace,
        max_kept_bytes: KEPT_BYTES,
    })?;
    let ask = || {
        let request = SampleRequest {
            parts: vec![("replay".to_owned(), BATCH)],
            columns: None,
            ragged: Ragged::Refuse,
            without_replacement: false,
            windows: None,
            at_once: false,
            only_now: false,
            leases: false,
        };
        client.draw(request, None)
    };
    let mut tickets = VecDeque::from_iter((0..IN_FLIGHT).map(|_| ask()));
    let mut next = || -> Result<(), Box<dyn Error>> {
        let mut ticket = tickets.pop_front().ok_or("nothing in flight")?;
        let sampled = loop {
            if let Some(outcome) = ticket.wait(Duration::from_secs(10)) {
                break outcome?;
            }
        };
        if let Some(error) = sampled.error {
            return Err(error.into());
        }
        assert_eq!(sampled.batches[0].len(), BATCH);
        tickets.push_back(ask());
        Ok(())
    };
    for _ in 0..100 {
        next()?;
    }
    let (before, start, mut batches) = ((used(std::process::id())?, used(server)?), Instant::now(), 0u32);
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..20 {
            next()?;
        }
        batches += 20;
    }
    let elapsed = start.elapsed().as_secs_f64();
    let each = |after: [f64; 3], before: [f64; 3]| {
        let [user, system, faults] = std::array::from_fn(|at| (after[at] - before[at]) / f64::from(batches));
        format!("{:.1} + {:.1}, {faults:.1}", user * 1e6, system * 1e6)
    };
    let ours = each(used(std::process::id())?, before.0);
    let theirs = each(used(server)?, before.1);
    let items = f64::from(batches) * BATCH as f64 / elapsed;
    let name = client.link().transport.unwrap_or("?".into());
    let rate = items * size as f64 / 1e9;
    println!("{size:>8} {name:>14} {items:>12.0} {rate:>8.2} {ours:>26} {theirs:>26}");
    Ok(())
}

/// Seconds of processor time that a process has used in user and in system mode, and its page faults.
fn used(process: u32) -> Result<[f64; 3], Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect::<Vec<_>>();
    let number = |at: usize| fields[at].parse::<f64>();
    Ok([number(11)? / 100.0, number(12)? / 100.0, number(7)?])
}

fn serve(size: usize) -> Result<(), Box<dyn Error>> {
    let items = (TABLE_BYTES / size).clamp(1, 1_000_000);
    let options = TableOptions {
        name: "replay".to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: items as u64,
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
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![options], None, &clock, 7)?);
    let sink: Arc<dyn Sink> = tables.clone();
    let column = ColumnSpec { path: String::new(), dtype: DType::UInt8, shape: vec![size] };
    let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
    let (mut writer, mut bytes) = (RowWriter::new(Arc::clone(&sink), Compression::None, false), vec![0u8; size]);
    for number in 0..items {
        bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let item = writer.append(&schema, &[ColumnCells { itemsize: 1, bytes: &bytes }], 1)?.remove(0);
        let mut ticket = sink.insert("replay", Inserts::from_iter([(item, Priority::Value(1.0))]))?;
        ticket.poll().ok_or("an insert waits")??;
    }
    let options = server::ServerOptions {
        address: "127.0.0.1:0".parse()?,
        token: None,
        tls: None,
        insecure: false,
        local: true,
        grace: Duration::from_secs(1),
        limits: server::Limits::default(),
        checkpoint: None,
        spans: false,
    };
    let server = Server::start(tables, options)?;
    println!("{}", server.address());
    // Until the parent is gone.
    let _ = std::io::stdin().read(&mut [0; 1]);
    Ok(())
}
