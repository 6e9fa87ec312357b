//! Shared memory between processes of one host: what arrives, and what is left when either is killed.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::Arrays;
use reverie_core::batch::Ragged;
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::replay::Replay;
use reverie_core::sample::SampleOutcome;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use reverie_core::{Error, Result};
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::listen::Server;
use reverie_net::server;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No wait here is longer unless something is wrong.
const WATCHDOG: Duration = Duration::from_secs(200);
/// Numbers of one step.
const WIDTH: usize = 20_000;
/// Says to the second process of a test what to do.
const TASK: &str = "REVERIE_TEST_TASK";

fn table(name: &str, min_size: u64) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 500,
        limiter: Limiter::min_size(min_size).unwrap(),
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

fn serve(local: bool) -> Server {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = vec![table("replay", 1), table("never", 500)];
    let options = server::ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: None,
        tls: None,
        insecure: false,
        local,
        grace: Duration::from_secs(1),
        limits: server::Limits::default(),
        checkpoint: None,
        spans: false,
    };
    Server::start(Arc::new(Tables::new(tables, None, &clock, 7).unwrap()), options).unwrap()
}

fn client(address: &str, transport: Transport) -> Arc<Remote> {
    let patience = Duration::from_secs(100);
    let grace = Duration::from_millis(50);
    let options = EndpointOptions {
        address: address.to_owned(),
        transport,
        token: None,
        tls: None,
        patience,
        grace,
        max_kept_bytes: KEPT_BYTES,
    };
    Remote::new(options).unwrap()
}

/// Writes rows of `WIDTH` equal numbers.
struct Rows {
    client: Arc<Remote>,
    writer: RowWriter,
    schema: Arc<Schema>,
}

impl Rows {
    fn new(client: &Arc<Remote>) -> Self {
        let sink: Arc<dyn Sink> = client.clone();
        let column = ColumnSpec { path: String::new(), dtype: DType::Float32, shape: vec![WIDTH] };
        let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
        Self { client: Arc::clone(client), writer: RowWriter::new(sink, Compression::None, false), schema }
    }

    fn insert(&mut self, value: f32) -> reverie_core::table::Ticket<reverie_core::table::Keys> {
        let bytes = value.to_ne_bytes().repeat(WIDTH);
        let items = self.writer.append(&self.schema, &[ColumnCells { itemsize: 4, bytes: &bytes }], 1).unwrap();
        let items = items.into_iter().map(|item| (item, Priority::Value(1.0)));
        self.client.insert("replay", Inserts::from_iter(items)).unwrap()
    }
}

fn draws(table: &str, n: usize) -> SampleRequest {
    SampleRequest {
        parts: vec![(table.to_owned(), n)],
        columns: None,
        ragged: Ragged::Refuse,
        without_replacement: false,
        windows: None,
        at_once: false,
        only_now: false,
        leases: false,
    }
}

/// The numbers of a batch's first output.
fn numbers(batch: &Arrays) -> Vec<f32> {
    let range = batch.layout.outputs[0].clone();
    assert!(range.end <= batch.block.len());
    // SAFETY: the block has these bytes, and no process writes them while it lives.
    let bytes = unsafe { std::slice::from_raw_parts(batch.block.as_ptr().add(range.start), range.len()) };
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// Every row of the batch is of one number that was written.
fn assert_rows(sampled: &SampleOutcome, n: usize) {
    assert_eq!(sampled.error, None);
    let numbers = numbers(sampled.batches[0].arrays().unwrap());
    assert_eq!(numbers.len(), n * WIDTH);
    for row in numbers.chunks(WIDTH) {
        assert!(row.iter().all(|number| *number == row[0]) && (0.0..1e6).contains(&row[0]), "{:?}", &row[..4]);
    }
}

/// Mappings of shared memory that this process has, and open descriptors of such.
fn shared_memory() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("/memfd:reverie")).count();
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    (mapped, links.filter(|target| target.to_string_lossy().contains("memfd:reverie")).count())
}

/// This test's other process: the test binary again. Killed when dropped.
struct OtherProcess {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl OtherProcess {
    fn spawn(task: &str, runtime_dir: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_other_process", "--ignored", "--nocapture"]).env(TASK, task);
        if let Some(directory) = runtime_dir {
            command.env("XDG_RUNTIME_DIR", directory);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next message of the other process.
    fn read_line(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the other process ended").unwrap();
            if let Some(line) = line.strip_prefix("says ") {
                return line.to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print_line(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsays {what}").unwrap();
    out.flush().unwrap();
}

#[tokio::test]
#[ignore = "the other process of the tests in this file"]
async fn the_other_process() {
    // This is no test: a run of all ignored tests has nothing to do here.
    let Ok(task) = std::env::var(TASK) else { return };
    let (task, address) = task.split_once(' ').unwrap();
    if task == "serve" {
        let server = serve(true);
        print_line(&format!("{} {}", server.address(), server.local_socket().unwrap()));
        // Until it is killed, or its parent is.
        let _ = std::io::stdin().read(&mut [0; 1]);
        return;
    }
    let client = client(address, Transport::SharedMemory);
    client.describe().await.unwrap();
    let (mut rows, mut held, mut tickets) = (Rows::new(&client), Vec::new(), Vec::new());
    let waiting = client.draw(draws("never", 1), None);
    for number in 0.. {
        if number == 20 {
            print_line("ready");
        }
        match task {
            "connect" => client.can_insert("replay", 1).await.map(drop).unwrap(),
            "insert" => {
                tickets.push(rows.insert(number as f32));
                if tickets.len() > 100 {
                    tickets.drain(..50).for_each(drop);
                    client.can_insert("replay", 1).await.unwrap();
                }
            }
            "acknowledge" => rows.insert(number as f32).await.map(drop).unwrap(),
            "sample" => {
                held.push(client.draw(draws("replay", 4), None).await.unwrap());
                held.truncate(8);
            }
            "draw" => drop(client.draw(draws("replay", 16), None)),
            other => panic!("{other}?"),
        }
    }
    drop(waiting);
}

/// Waits until the server, which is in this process, has no such connection and no shared memory.
async fn nothing_left(observer: &Arc<Remote>, after: &str) {
    let start = Instant::now();
    loop {
        let connections = observer.info().await.unwrap().num_local_connections;
        let (mapped, open) = shared_memory();
        if (connections, mapped, open) == (0, 0, 0) {
            return;
        }
        let left = format!("{connections} connections, {mapped} mappings, {open} descriptors");
        assert!(start.elapsed() < WATCHDOG, "left after {after}: {left}");
    }
}

#[tokio::test]
async fn items_written_through_shared_memory_are_read_from_it() -> Result<()> {
    let server = serve(true);
    let client = client(&server.address().to_string(), Transport::Auto);
    client.describe().await?;
    assert_eq!(
        (client.link().transport, client.link().reason.as_str()),
        (Some("shared-memory".into()), "the server is on this host")
    );
    let mut rows = Rows::new(&client);
    let tickets = (0..200).map(|number| rows.insert(number as f32)).collect::<Vec<_>>();
    for ticket in tickets {
        ticket.await?;
    }
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(client.draw(draws("replay", 16), None).await?);
        held.truncate(3);
        held.iter().for_each(|sampled| assert_rows(sampled, 16));
    }
    assert!(client.link().bytes_sent > 200 * 4 * WIDTH as u64);
    assert!(client.link().bytes_received > 20 * 16 * 4 * WIDTH as u64);
    let (mapped, open) = shared_memory();
    assert!((2..=20).contains(&mapped) && open == 0, "{mapped} mapped and {open} open, of both ends");
    Ok(())
}

#[tokio::test]
async fn batches_that_are_held_beyond_the_slots_arrive_all_the_same() -> Result<()> {
    let server = serve(true);
    let client = client(&server.address().to_string(), Transport::SharedMemory);
    client.describe().await?;
    rows_in(&client, 10).await?;
    // 8 MB each; a session may have 512 MB of slots.
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(client.draw(draws("replay", 100), None).await?);
    }
    held.iter().step_by(13).chain(held.last()).for_each(|sampled| assert_rows(sampled, 100));
    assert!(shared_memory().0 < 2 * 70, "more slots than the bound");
    let reports_no_memory =
        || client.link().reason.contains("no shared memory left for batches, which go through the socket");
    assert!(reports_no_memory(), "{}", client.link().reason);
    drop(held);
    for _ in 0..1_000 {
        if !reports_no_memory() {
            return Ok(());
        }
        client.draw(draws("replay", 100), None).await?;
    }
    panic!("{}", client.link().reason);
}

async fn rows_in(client: &Arc<Remote>, n: usize) -> Result<()> {
    let mut rows = Rows::new(client);
    for number in 0..n {
        rows.insert(number as f32).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_is_killed_leaves_nothing_behind() -> Result<()> {
    let server = serve(true);
    let address = server.address().to_string();
    let observer = client(&address, Transport::Grpc);
    observer.describe().await?;
    rows_in(&observer, 10).await?;
    for task in ["connect", "insert", "acknowledge", "sample", "draw"] {
        let mut other = OtherProcess::spawn(&format!("{task} {address}"), None);
        assert_eq!(other.read_line(), "ready");
        assert_eq!(observer.info().await?.num_local_connections, 1, "{task}");
        other.kill();
        nothing_left(&observer, task).await;
        assert_rows(&observer.draw(draws("replay", 4), None).await?, 4);
    }
    Ok(())
}

/// A directory of its own, gone at the end.
struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn serving(base: &TemporaryDirectory) -> (OtherProcess, String, PathBuf) {
    let mut other = OtherProcess::spawn("serve ", Some(&base.0));
    let line = other.read_line();
    let (address, path) = line.split_once(' ').unwrap();
    (other, address.to_owned(), PathBuf::from(path))
}

#[tokio::test]
async fn a_server_that_is_killed_takes_no_batch_away_and_the_next_start_cleans_up() -> Result<()> {
    let base = TemporaryDirectory(std::env::temp_dir().join(format!("reverie-test-{}-killed", std::process::id())));
    fs::create_dir(&base.0).unwrap();
    let (other, address, path) = serving(&base);
    let client = client(&address, Transport::SharedMemory);
    client.describe().await?;
    rows_in(&client, 10).await?;
    let held = client.draw(draws("replay", 16), None).await?;
    other.kill();
    assert_rows(&held, 16);
    let late = client.draw(draws("replay", 16), Some(Duration::from_millis(100))).await?;
    assert!(matches!(late.error, Some(Error::Deadline(why)) if why.contains(&address)), "the server is named");
    assert!(path.exists(), "no process was there to remove it");
    let (next, _, other_path) = serving(&base);
    assert!(!path.exists() && other_path.exists());
    assert_rows(&held, 16);
    drop((client, held, next));
    Ok(())
}

#[tokio::test]
async fn a_server_that_stops_removes_its_socket() {
    let server = serve(true);
    let path = PathBuf::from(server.local_socket().unwrap());
    assert!(path.exists());
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn without_a_socket_auto_reports_why_it_goes_over_grpc_and_shared_memory_alone_is_an_error() -> Result<()> {
    let server = serve(false);
    let address = server.address().to_string();
    let auto = client(&address, Transport::Auto);
    auto.describe().await?;
    assert_eq!(auto.link().transport, Some("grpc".into()));
    assert!(auto.link().reason.contains("the server has no Unix socket"), "{}", auto.link().reason);
    let refused = client(&address, Transport::SharedMemory).describe().await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument(why) if why.contains("shared memory is not available for")));
    Ok(())
}

#[tokio::test]
async fn a_socket_that_is_away_for_a_moment_is_tried_again_as_a_port_is() -> Result<()> {
    let server = serve(true);
    let (address, socket) = (server.address().to_string(), PathBuf::from(server.local_socket().unwrap()));
    let away = socket.with_extension("away");
    fs::rename(&socket, &away).unwrap();
    let client = client(&address, Transport::SharedMemory);
    let described = client.describe();
    // An attempt was made, and failed.
    let start = Instant::now();
    loop {
        let reason = Sink::wait_reason(&*client, "replay").await?;
        if reason.contains("shared memory is not available") {
            break;
        }
        assert!(start.elapsed() < WATCHDOG, "{reason}");
        tokio::task::yield_now().await;
    }
    fs::rename(&away, &socket).unwrap();
    described.await?;
    assert_eq!(client.link().transport, Some("shared-memory".into()));
    Ok(())
}

#[tokio::test]
async fn a_socket_that_stays_away_ends_the_patience_with_what_to_do() {
    let server = serve(true);
    let (address, socket) = (server.address().to_string(), PathBuf::from(server.local_socket().unwrap()));
    fs::remove_file(&socket).unwrap();
    let (transport, grace) = (Transport::SharedMemory, Duration::from_millis(50));
    let mut reason = String::new();
    // It reports on an attempt that was made: on a busy machine that takes time.
    for patience in [100, 1_000, 10_000, 100_000].map(Duration::from_millis) {
        let options = EndpointOptions {
            address: address.clone(),
            transport,
            token: None,
            tls: None,
            patience,
            grace,
            max_kept_bytes: KEPT_BYTES,
        };
        let refused = Remote::new(options).unwrap().describe().await.map(drop).unwrap_err();
        assert!(matches!(&refused, Error::Unavailable(_)), "{refused}");
        reason = refused.to_string();
        if reason.contains("shared memory is not available") {
            break;
        }
    }
    assert!(reason.contains("use transport='auto', which falls back to gRPC"), "{reason}");
}
