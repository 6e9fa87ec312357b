//! A server's tables with a journal on a simulated disk.

use super::disk::FakeDisk;
use super::saving::{NOW, ROOT, contents};
use super::{Rows, options, queue, tables};
use reverie_core::checkpoint::{RetentionPolicy, Store};
use reverie_core::error::Error;
use reverie_core::journal::{Journal, JournalEnd, JournalOptions, Log, SyncPolicy, recover};
use reverie_core::sample::SampleRequest;
use reverie_core::table::{Tables, Ticket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(60);

pub fn options_of(syncs: SyncPolicy) -> JournalOptions {
    // So that only requests that wait cause writes.
    JournalOptions { syncs, interval: LONG, ..JournalOptions::default() }
}

pub struct Server {
    pub disk: FakeDisk,
    pub tables: Arc<Tables>,
    pub store: Arc<Store>,
    pub journal: Arc<Journal>,
    pub rows: Rows,
}

pub fn all() -> Vec<reverie_core::table::TableOptions> {
    vec![options("rows", 10), queue("queue", 10)]
}

pub fn server(options: JournalOptions) -> Server {
    let (tables, _) = tables(all());
    let disk = FakeDisk::default();
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let (store, start) = (Arc::new(store), JournalEnd::default());
    let journal = Journal::begin(Arc::clone(&tables), Arc::clone(&store), start, options, || NOW).unwrap();
    Server { rows: Rows::new(&tables), disk, tables, store, journal }
}

/// The contents of the tables of a server that starts on this disk.
pub fn left(disk: &FakeDisk) -> Vec<String> {
    let (tables, _) = tables(all());
    let recovered = recover(disk, Path::new(ROOT), tables.bytes().0).unwrap().expect("a checkpoint");
    recovered.checkpoint.restore(&tables, NOW).unwrap();
    tables.iter().map(|table| contents(&tables, table.name())).collect()
}

pub fn now(server: &Server) -> Vec<String> {
    server.tables.iter().map(|table| contents(&server.tables, table.name())).collect()
}

pub fn wait<T>(mut ticket: Ticket<T>) -> Result<T, Error> {
    (0..60).find_map(|_| ticket.wait(Duration::from_secs(1))).expect("it ends")
}

impl Server {
    pub fn insert(&mut self, table: &str, value: f64) -> Ticket<reverie_core::table::Keys> {
        self.tables.get(table).unwrap().insert(self.rows.inserts(&[value])).unwrap()
    }

    pub fn draw(&self, table: &str) -> Ticket<reverie_core::sample::Draws> {
        let request = SampleRequest { num_samples: 1, ..SampleRequest::default() };
        self.tables.get(table).unwrap().sample(request).unwrap()
    }
}

/// A journal without a thread, in segments of 300 bytes.
pub fn small_segments() -> (Arc<Tables>, FakeDisk, Log) {
    let (tables, _) = tables(all());
    let disk = FakeDisk::default();
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let store = Arc::new(store.with_segment_bytes(300));
    let log = Log::begin(Arc::clone(&tables), store, JournalEnd::default(), || NOW).unwrap();
    (tables, disk, log)
}
