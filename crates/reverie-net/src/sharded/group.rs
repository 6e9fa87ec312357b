//! The client of several servers: its parts, and the choice of a server for inserts.

use super::calls::RequestEnd;
use super::members::{Members, Watcher};
use super::model::Model;
use super::regrant;
use super::table::{Table, TableKind};
use crate::client::runtime;
use reverie_core::replay::Replay;
use reverie_core::sample::ArrayAllocator;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{RequestHolder, TableOptions, Ticket, Withdrawal};
use reverie_core::{Error, Result};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// The most servers: a key names its server by 6 bits.
pub(super) const MAX_SHARDS: usize = 64;

/// A server.
pub struct Shard {
    /// Reaches it.
    pub replay: Arc<dyn Replay>,
    /// The address of the server, or "in this process".
    pub address: String,
}

/// The options of a client of several servers.
#[derive(Clone, Debug)]
pub struct ShardedOptions {
    /// The limits over all servers. Without them, draws wait for the first item, and inserts for nothing.
    pub limiter: Option<Limiter>,
    /// `(i, n)`: this is client `i` of `n` that sample under these limits. Client 0 grants the inserts.
    pub among: (usize, usize),
    /// Fixes the choice of servers for draws.
    pub seed: u64,
    /// Returns memory for batches that are joined.
    pub allocate: ArrayAllocator,
}

/// Several servers as one replay: an item is drawn as if all were in one table.
///
/// A server is drawn from with the probability of its mass, and draws one of its items; the product of both
/// probabilities is the draw's. A server that cannot be reached is left out, with a warning, until it answers again.
/// Every server has its own number in its keys, and its tables have rationed limiters, or none.
pub struct Sharded(pub(super) Arc<ShardedState>);

/// The shared state of a [`Sharded`].
pub(super) struct ShardedState {
    pub(super) members: Arc<Members>,
    pub(super) options: ShardedOptions,
    pub(super) runtime: Handle,
    connected: OnceCell<()>,
    /// The tables in use. Held for a look.
    tables: Mutex<HashMap<String, Arc<Table>>>,
    /// Held while a table is opened.
    opening: tokio::sync::Mutex<()>,
}

impl Sharded {
    /// Checks the options. It connects at the first request.
    pub fn new(shards: Vec<Shard>, options: ShardedOptions) -> Result<Arc<Self>> {
        Self::on(shards, options, &runtime::handle()?)
    }

    /// Like [`Sharded::new`], with another runtime: for simulations.
    pub fn on(shards: Vec<Shard>, options: ShardedOptions, runtime: &Handle) -> Result<Arc<Self>> {
        if shards.is_empty() || shards.len() > MAX_SHARDS {
            let reason = format!("shards must be 1 to {MAX_SHARDS}, got {}", shards.len());
            return Err(Error::InvalidArgument(reason));
        }
        if let Some(limiter) = &options.limiter {
            refuse_rationed(limiter)?;
        }
        let members = shards.into_iter().map(|Shard { replay, address }| (replay, address)).collect();
        let group = ShardedState {
            members: Arc::new(Members::new(members, runtime)),
            options,
            runtime: runtime.clone(),
            connected: OnceCell::new(),
            tables: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        };
        let grants = group.options.limiter.is_some() && group.options.among.0 == 0;
        let group = Arc::new(group);
        if grants {
            let of = Arc::downgrade(&group);
            let tables = move || of.upgrade().map(|group| group.open_tables().values().map(Arc::clone).collect());
            regrant::keep_granting(&group.members, runtime, tables);
        }
        Ok(Arc::new(Self(group)))
    }

    /// The number of servers, lost ones included.
    pub fn num_shards(&self) -> usize {
        self.0.members.len()
    }

    /// Chooses the server of an insert or a writer: the given one, or the next that can be reached.
    ///
    /// If this client grants inserts, the server is granted these rows for the tables, as far as the limits allow.
    /// `InvalidArgument` for an index that no server has, `Unavailable` if none can be reached.
    pub fn place(&self, shard: Option<usize>, tables: &[&str], rows: u64, timeout: Option<Duration>) -> Ticket<usize> {
        let tables: Vec<String> = tables.iter().map(|table| (*table).to_owned()).collect();
        self.run(timeout, move |group, end| async move {
            group.connect(&end).await?;
            loop {
                let chosen = group.members.chosen(shard)?;
                group.members.check_restarted(&end, [chosen]).await;
                if shard.is_some() {
                    group.members.refuse_unfit(chosen)?;
                }
                for table in &tables {
                    group.grant(table, chosen, rows, &end).await?;
                }
                // It may have been lost meanwhile.
                if shard.is_some() || !group.members.is_lost(chosen) {
                    return Ok(chosen);
                }
            }
        })
    }

    /// Takes note of an insert that failed at a server: a server that cannot be reached is left out.
    pub fn failed(&self, shard: usize, error: &Error) {
        // An insert never fails for lack of a connection: it waits for its server.
        self.0.members.missed(shard, error);
    }

    /// Fails requests that wait, and all later ones, with `ClientClosed`. Idempotent.
    pub fn close(&self) {
        self.0.members.close();
    }

    /// A request that asks servers. It is driven by the caller that waits for its ticket, and ends with the client.
    pub(super) fn run<T, F>(
        &self,
        timeout: Option<Duration>,
        work: impl FnOnce(Arc<ShardedState>, RequestEnd) -> F,
    ) -> Ticket<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (withdrawal, members) = (Withdrawal::default(), Arc::clone(&self.0.members));
        let work = work(Arc::clone(&self.0), RequestEnd::new(&self.0.runtime, timeout, &withdrawal));
        Ticket::driven(async move { members.unless_closed(work).await }, withdrawal)
    }

    /// A request that needs a table of all servers.
    pub(super) fn at<T, F>(
        &self,
        table: &str,
        timeout: Option<Duration>,
        work: impl FnOnce(Arc<ShardedState>, Arc<Table>, RequestEnd) -> F + Send + 'static,
    ) -> Ticket<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let table = table.to_owned();
        self.run(timeout, |group, end| async move {
            let table = group.open(&table, &end).await?;
            work(group, table, end).await
        })
    }

    /// Like [`Sharded::at`], as a task: no caller drives it.
    ///
    /// Otherwise the first request for a table could keep others from opening it.
    pub(super) fn unawaited<T, F>(
        &self,
        table: &str,
        work: impl FnOnce(Arc<ShardedState>, Arc<Table>, RequestEnd) -> F + Send + 'static,
    ) -> Ticket<T>
    where
        T: Send + Unpin + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (group, table, withdrawal) = (Arc::clone(&self.0), table.to_owned(), Withdrawal::default());
        let end = RequestEnd::new(&group.runtime, None, &withdrawal);
        // Asks here, so that updates are in the order of their calls. It goes on when the client is closed.
        let mut driven = Ticket::driven(
            async move {
                let table = group.open(&table, &end).await?;
                work(group, table, end).await
            },
            withdrawal,
        );
        if let Some(outcome) = driven.poll() {
            return Ticket::done(outcome);
        }
        let (ticket, promise) = Ticket::promised(Arc::new(UnawaitedHolder), 0, false);
        self.0.runtime.spawn(async move { promise.fill(driven.await) });
        ticket
    }
}

/// Requests that no caller waits for are not withdrawn.
struct UnawaitedHolder;

impl<T> RequestHolder<T> for UnawaitedHolder {
    fn withdraw(&self, _: u64) -> Option<T> {
        None
    }
}

/// Refuses the limiter of a table of one server as the limits over all servers.
pub(super) fn refuse_rationed(limiter: &Limiter) -> Result<()> {
    match limiter.is_rationed() {
        true => Err(Error::InvalidArgument(
            "rate_limiter must be the limits of all shards; Rationed() is for the tables of the shards".to_owned(),
        )),
        false => Ok(()),
    }
}

impl Drop for Sharded {
    fn drop(&mut self) {
        self.0.members.close();
    }
}

impl ShardedState {
    pub(super) fn open_tables(&self) -> MutexGuard<'_, HashMap<String, Arc<Table>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all servers for their tables, once.
    pub(super) async fn connect(&self, end: &RequestEnd) -> Result<()> {
        self.members.refuse_closed()?;
        let connected = self.connected.get_or_try_init(|| self.connect_all(end));
        match end.within(end.answer(), connected).await {
            Some(connected) => connected.map(drop),
            None => Err(Error::Deadline("another call asks the shards for their tables".to_owned())),
        }
    }

    async fn connect_all(&self, end: &RequestEnd) -> Result<()> {
        let restarts: Vec<u64> = self.members.all().map(|(_, replay)| replay.restarts()).collect();
        let asked = self.members.all().map(|(shard, replay)| (shard, Arc::clone(replay), replay.info())).collect();
        let outcomes = end.all(asked).await;
        self.members.note_numbers(&outcomes);
        for (shard, outcome) in outcomes {
            match outcome.and_then(|info| self.members.admit(shard, &info, restarts[shard])) {
                Err(error) if self.members.missed(shard, &error) => {}
                outcome => outcome?,
            }
        }
        self.members.refuse_none()?;
        if self.options.limiter.is_none() {
            return Ok(());
        }
        let mut rationed = Vec::new();
        let names = self.members.table_names();
        for name in &names {
            if self.members.table(name)?.limiter.is_rationed() {
                rationed.push(name);
            }
        }
        if rationed.is_empty() {
            return Err(Error::InvalidArgument(format!(
                "rate_limiter limits nothing: no table has rate_limiters.Rationed() (there are '{}'); \
                 reverie.sharding.shard_table makes such tables",
                names.join("', '")
            )));
        }
        for name in rationed {
            self.open_connected(name, end).await?;
        }
        Ok(())
    }

    /// The state of a table, made at its first use.
    pub(super) async fn open(&self, name: &str, end: &RequestEnd) -> Result<Arc<Table>> {
        self.connect(end).await?;
        self.members.check_restarted(end, 0..self.members.len()).await;
        self.open_connected(name, end).await
    }

    async fn open_connected(&self, name: &str, end: &RequestEnd) -> Result<Arc<Table>> {
        if let Some(table) = self.open_tables().get(name) {
            return Ok(Arc::clone(table));
        }
        let Some(_opening) = end.within(end.answer(), self.opening.lock()).await else {
            return Err(Error::Deadline(format!("another call asks the shards for table '{name}'")));
        };
        let known = self.open_tables().get(name).map(Arc::clone);
        if let Some(table) = known {
            return Ok(table);
        }
        let table = Arc::new(self.table(&self.members.table(name)?)?);
        self.members.uses(name);
        let watcher: Arc<dyn Watcher> = Arc::clone(&table) as _;
        self.members.watch(&watcher);
        table.begin(end).await?;
        self.open_tables().insert(name.to_owned(), Arc::clone(&table));
        Ok(table)
    }

    fn table(&self, options: &TableOptions) -> Result<Table> {
        let count = self.options.among.1;
        let limiter = self.options.limiter.filter(|_| options.limiter.is_rationed());
        let is_limited = limiter.is_some();
        // Another seed for every table, or all would choose the same servers.
        let opened = self.open_tables().len() as u64;
        let seed = self.options.seed.wrapping_add(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(opened));
        let model = Model::new(self.members.len(), limiter.map_or_else(|| Limiter::min_size(1), Ok)?, seed);
        let model = if count > 1 { model.among_others() } else { model };
        let independent = matches!(options.sampler, SelectorOptions::Uniform | SelectorOptions::Prioritized { .. });
        let kind = TableKind {
            is_limited,
            grants: self.grants(options),
            is_remote: self.members.all().all(|(_, replay)| replay.round_trip().is_some()),
            // Draws by earlier masses may discard some: another client would count these.
            discards: independent && count == 1,
        };
        Ok(Table::new(&self.members, options.name.clone(), model, kind))
    }

    /// True if this client grants inserts into a table.
    fn grants(&self, options: &TableOptions) -> bool {
        self.options.limiter.is_some() && self.options.among.0 == 0 && options.limiter.is_rationed()
    }

    /// Grants inserts into a table to a server, if this client grants them.
    async fn grant(&self, table: &str, shard: usize, rows: u64, end: &RequestEnd) -> Result<()> {
        // Otherwise a server that is silent would delay inserts into the others.
        if !self.grants(&self.members.table(table)?) {
            self.members.uses(table);
            return Ok(());
        }
        let table = self.open(table, end).await?;
        let mut wants = vec![0; self.members.len()];
        wants[shard] = rows;
        loop {
            let granted = table.session(shard);
            table.refresh_granting(end, &wants).await?;
            // A ration of before is lost with a server that is restarted meanwhile.
            if table.session(shard) == granted {
                return Ok(());
            }
        }
    }
}
