//! The remote client and the server, over gRPC within one process.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch;
use reverie_core::batch::Ragged;
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::replay::Replay;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables, Updates};
use reverie_core::{Error, Result};
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::endpoint::{EndpointOptions, Transport};
use reverie_net::grpc::connector::{Connecting, Connector, Stream};
use reverie_net::{listen, server};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A network within memory, which can be cut.
struct Wire(mpsc::UnboundedSender<io::Result<(DuplexStream, String)>>, Arc<NetworkCut>);

#[derive(Default)]
struct NetworkCut {
    now: Notify,
    /// Neither end notices it, and there is no other connection.
    is_silent: AtomicBool,
}

impl NetworkCut {
    fn notify_one(&self) {
        self.now.notify_one();
    }

    /// Cuts the network as a machine does that loses its power.
    fn cut_silently(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
        self.notify_one();
    }
}

impl Connector for Wire {
    fn connect(&self, _address: &str) -> Connecting {
        let ((ours, mut near), (mut far, theirs)) = (tokio::io::duplex(1 << 16), tokio::io::duplex(1 << 16));
        let cut = Arc::clone(&self.1);
        if cut.is_silent.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let sent = self.0.send(Ok((theirs, "memory".to_owned())));
        Box::pin(async move {
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = cut.now.notified() => {}
                }
                if cut.is_silent.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
            });
            sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

fn serve(tables: Vec<TableOptions>) -> (Arc<Tables>, Arc<Remote>) {
    let (tables, client, _) = serve_with(tables, server::Limits::default());
    (tables, client)
}

/// The last cuts the connection that there is.
fn serve_with(tables: Vec<TableOptions>, limits: server::Limits) -> (Arc<Tables>, Arc<Remote>, Arc<NetworkCut>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(tables, None, &clock, 7).unwrap());
    let (connections, incoming) = mpsc::unbounded_channel();
    let served = Arc::clone(&tables);
    tokio::spawn(async move {
        let options = server::ServerOptions {
            address: "127.0.0.1:0".parse().unwrap(),
            token: None,
            tls: None,
            insecure: false,
            local: false,
            grace: Duration::from_secs(1),
            limits,
            checkpoint: None,
            spans: false,
        };
        listen::serve(served, &options, UnboundedReceiverStream::new(incoming)).await
    });
    let options = EndpointOptions {
        address: "memory:1".to_owned(),
        transport: Transport::Auto,
        token: None,
        tls: None,
        patience: Duration::from_secs(5),
        grace: Duration::from_millis(50),
        max_kept_bytes: 0,
    };
    let cut = Arc::<NetworkCut>::default();
    let wire = Arc::new(Wire(connections, Arc::clone(&cut)));
    let client = Remote::on(options, &tokio::runtime::Handle::current(), wire, [1; 16]).unwrap();
    (tables, client, cut)
}

fn table(name: &str, sampler: SelectorOptions) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler,
        remover: SelectorOptions::Fifo,
        max_size: 10_000,
        limiter: Limiter::min_size(1).unwrap(),
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

struct Rows {
    writer: RowWriter,
    schema: Arc<Schema>,
}

impl Rows {
    fn new<S: Sink + 'static>(of: &Arc<S>) -> Self {
        let sink: Arc<dyn Sink> = of.clone();
        let column = ColumnSpec { path: String::new(), dtype: DType::Float64, shape: vec![] };
        let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
        Self { writer: RowWriter::new(sink, Compression::None, false), schema }
    }

    fn inserts(&mut self, value: f64) -> Inserts {
        let cells = ColumnCells { itemsize: 8, bytes: &value.to_ne_bytes() };
        let item = self.writer.append(&self.schema, &[cells], 1).unwrap().remove(0);
        Inserts::from_iter([(item, Priority::Value(1.0))])
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

#[tokio::test(start_paused = true)]
async fn written_items_are_read_back() -> Result<()> {
    let (tables, client) = serve(vec![table("replay", SelectorOptions::Fifo), table("other", SelectorOptions::Fifo)]);
    let described = client.describe().await?.unwrap();
    assert_eq!(described.tables.len(), 2);
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> =
        (0..1000).map(|value| client.insert("replay", rows.inserts(f64::from(value))).unwrap()).collect();
    let mut keys = Vec::new();
    for ticket in tickets {
        keys.extend(ticket.await?.iter().map(|key| key.get()));
    }
    assert_eq!(tables.get("replay")?.info().size, 1000);
    assert_eq!(tables.get("other")?.info().size, 0);
    let sampled = client.draw(draws("replay", 64), None).await?;
    assert_eq!(sampled.error, None);
    assert_eq!(sampled.batches[0].len(), 64);
    let read = client.get("replay", &keys[5..8], &batch::BatchOptions::default()).await?;
    assert_eq!((read.error, read.batches[0].len()), (None, 3));
    let (updated, deleted) = client
        .mutate(
            "replay",
            &Updates { keys: &keys[..2], priorities: &[2.0, 3.0], ..Updates::default() },
            &keys[10..13],
            true,
        )
        .await?;
    assert_eq!((updated.applied, deleted.applied), (2, 3));
    assert!(client.can_insert("replay", 1).await?);
    let info = client.info().await?;
    assert_eq!((info.tables[0].size, info.num_grpc_connections), (997, 1));
    assert!(client.why("replay").await?.text.contains("table 'replay'"));
    client.reset("replay").await?;
    assert_eq!(tables.get("replay")?.info().size, 0);
    assert!(matches!(client.reset("none").await, Err(Error::UnknownTable { .. })));
    assert!(matches!(client.insert("none", rows.inserts(0.0)), Err(Error::UnknownTable { .. })));
    let nan = rows.inserts(0.0).into_iter().map(|(item, _)| (item, Priority::Value(f64::NAN))).collect();
    assert!(matches!(client.insert("replay", nan), Err(Error::InvalidArgument(_))));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_while_all_credit_is_used_is_made_again_and_nothing_is_lost() -> Result<()> {
    let limiter = Limiter::new(1.0, 1, 0.0, 4.0)?;
    let queue = TableOptions { limiter, max_size: 4, max_times_sampled: 1, ..table("queue", SelectorOptions::Fifo) };
    let limits = server::Limits { session_insert_bytes: 4 << 10, total_insert_bytes: 4 << 10, ..Default::default() };
    let (tables, client, cut) = serve_with(vec![queue], limits);
    client.describe().await?;
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> =
        (0..300).map(|value| client.insert("queue", rows.inserts(f64::from(value))).unwrap()).collect();
    let waiting = || tables.get("queue").map(|table| table.info().pending_inserts);
    while waiting()? < 30 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3 {
        cut.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(waiting()? >= 30, "the credit is used");
    let mut drawn = 0;
    while drawn < 300 {
        let sampled = client.draw(draws("queue", 3), Some(Duration::from_secs(5))).await?;
        assert_eq!(sampled.error, None);
        drawn += sampled.batches[0].len();
    }
    for ticket in tickets {
        assert_eq!(ticket.await?.len(), 1);
    }
    let info = tables.get("queue")?.info();
    assert_eq!((info.counters.inserts, info.counters.samples, client.link().reconnects), (300, 300, 3));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_machine_is_gone_takes_draws_for_fifteen_seconds_and_keeps_them_for_its_sessions_time()
-> Result<()> {
    let limiter = Limiter::new(1.0, 1, 0.0, 4.0)?;
    let queue = TableOptions { limiter, max_size: 4, max_times_sampled: 1, ..table("queue", SelectorOptions::Fifo) };
    let (tables, client, cut) = serve_with(vec![queue], server::Limits::default());
    client.describe().await?;
    let queue = Arc::clone(tables.get("queue")?);
    let mut waiting = Vec::new();
    for n in [1, 3] {
        waiting.push(client.draw(draws("queue", n), None));
        while queue.why().num_samples < waiting.len() as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    cut.cut_silently();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut rows = Rows::new(&tables);
    for value in [1.0, 2.0] {
        assert!(queue.insert(rows.inserts(value))?.is_done());
    }
    let left = || (queue.info().size, queue.info().leased, queue.why().num_samples);
    assert_eq!(left(), (0, 2, 1), "the server cannot know yet");
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(left(), (1, 1, 0), "what was sent whole waits for it");
    tokio::time::sleep(server::Limits::default().linger).await;
    assert_eq!((left(), queue.info().counters.samples), ((2, 0, 0), 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_table_that_takes_no_inserts_stops_none_into_other_tables_and_has_all_of_its_own_in_order_later() -> Result<()>
{
    let full = |name: &str| -> Result<TableOptions> {
        let limiter = Limiter::new(1.0, 1, 0.0, 4.0)?;
        Ok(TableOptions { limiter, max_size: 4, max_times_sampled: 1, ..table(name, SelectorOptions::Fifo) })
    };
    let limits = server::Limits { session_insert_bytes: 4 << 10, ..Default::default() };
    let open = table("open", SelectorOptions::Fifo);
    let (tables, client, cut) = serve_with(vec![full("full")?, open, full("second")?], limits);
    client.describe().await?;
    let mut rows = Rows::new(&client);
    let mut insert = |name: &str, value: i32| client.insert(name, rows.inserts(f64::from(value))).unwrap();
    // One caller fills two tables, and goes on with a third: alone, and in turns with one that is full.
    let mut blocked: Vec<_> = (0..200).flat_map(|value| [insert("full", value), insert("second", value)]).collect();
    let mut open: Vec<_> = (0..500).map(|value| insert("open", value)).collect();
    for value in 200..300 {
        blocked.extend([insert("full", value), insert("second", value)]);
        open.extend((0..5).map(|_| insert("open", value)));
    }
    for cuts in 0..4 {
        for ticket in std::mem::take(&mut open) {
            let confirmed = tokio::time::timeout(Duration::from_secs(20), ticket).await;
            assert_eq!(confirmed.expect("an insert into a table with room waits")?.len(), 1);
        }
        if cuts < 3 {
            cut.notify_one();
            open.extend((0..200).map(|value| insert("open", value)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    assert_eq!((tables.get("open")?.info().counters.inserts, client.link().reconnects), (1600, 3));
    for name in ["full", "second"] {
        assert_eq!(tables.get(name)?.info().size, 4);
        for value in (0..300).step_by(3) {
            let sampled = client.draw(draws(name, 3), Some(Duration::from_secs(20))).await?;
            assert_eq!(sampled.error, None, "{name} at {value}");
            let batch = sampled.batches[0].arrays().unwrap();
            let bytes = batch.block.copied(batch.layout.outputs[0].clone());
            let values: Vec<_> = bytes.chunks(8).map(|cell| f64::from_ne_bytes(cell.try_into().unwrap())).collect();
            assert_eq!(values, [0, 1, 2].map(|at| f64::from(value + at)), "in order, and none twice");
        }
    }
    for ticket in blocked {
        assert_eq!(ticket.await?.len(), 1);
    }
    let info = tables.get("full")?.info();
    assert_eq!((info.counters.inserts, info.counters.samples), (300, 300));
    Ok(())
}
