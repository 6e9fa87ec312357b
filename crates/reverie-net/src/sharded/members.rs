//! The servers of a replay: which can be reached, and which one a key belongs to.

use super::calls::{End, Outcomes, is_lost};
use futures_util::future::BoxFuture;
use reverie_core::replay::{Info, Replay};
use reverie_core::table::{TableOptions, Ticket};
use reverie_core::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// A key's bits below those of its server.
const SHARD_AT: u32 = 57;
/// The time between two attempts to reach a lost server: at first, and at most.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Is notified when a server is lost or back.
pub(super) trait Watcher: Send + Sync {
    /// The server cannot be reached.
    fn lost(&self, shard: usize);

    /// The server answers again. It is lost again if this fails.
    fn join(&self, shard: usize) -> BoxFuture<'_, Result<()>>;
}

/// The servers in the given order, lost ones included.
///
/// A server that fails is lost, with one warning; a task asks it until it is back.
pub(super) struct Members {
    members: Vec<Member>,
    /// Held for a look.
    state: Mutex<Vec<Known>>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    turns: AtomicUsize,
    is_closed: AtomicBool,
    runtime: Handle,
}

struct Member {
    replay: Arc<dyn Replay>,
    name: String,
}

/// What is known of a server.
#[derive(Default)]
struct Known {
    is_lost: bool,
    /// It is being asked whether it can be reached.
    is_doubted: bool,
    /// Its number in keys; `None` before its first answer.
    number: Option<u8>,
    tables: Option<Vec<TableOptions>>,
}

impl Members {
    pub(super) fn new(shards: Vec<(Arc<dyn Replay>, String)>, runtime: &Handle) -> Self {
        let state = shards.iter().map(|_| Known::default()).collect();
        let member = |(shard, (replay, address))| Member { replay, name: format!("shard {shard} ({address})") };
        let members: Vec<_> = shards.into_iter().enumerate().map(member).collect();
        // Clients begin at different servers.
        let mut first = [0; 8];
        let _ = rustix::rand::getrandom(&mut first, rustix::rand::GetRandomFlags::empty());
        Self {
            turns: AtomicUsize::new(usize::from_le_bytes(first) % members.len()),
            members,
            state: Mutex::new(state),
            watchers: Mutex::default(),
            is_closed: AtomicBool::new(false),
            runtime: runtime.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Vec<Known>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Notifies this one of lost servers from now on, as long as it lives.
    pub(super) fn watch(&self, watcher: &Arc<dyn Watcher>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(Arc::downgrade(watcher));
    }

    fn watchers(&self) -> Vec<Arc<dyn Watcher>> {
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.iter().filter_map(Weak::upgrade).collect()
    }

    /// All servers, lost ones included.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Arc<dyn Replay>)> {
        self.members.iter().map(|member| &member.replay).enumerate()
    }

    pub(super) fn replay(&self, shard: usize) -> &Arc<dyn Replay> {
        &self.members[shard].replay
    }

    /// The name of a server in messages.
    pub(super) fn name(&self, shard: usize) -> &str {
        &self.members[shard].name
    }

    /// The servers that can be reached.
    pub(super) fn present(&self) -> Vec<usize> {
        let state = self.state();
        (0..self.len()).filter(|shard| !state[*shard].is_lost).collect()
    }

    /// The names of lost servers.
    pub(super) fn lost_names(&self) -> String {
        let state = self.state();
        let lost = (0..self.len()).filter(|shard| state[*shard].is_lost).map(|shard| self.name(shard));
        lost.collect::<Vec<_>>().join(", ")
    }

    /// Refuses a request if no server can be reached.
    pub(super) fn refuse_none(&self) -> Result<()> {
        match self.present().is_empty() {
            true => Err(Error::Unavailable(format!("no shard can be reached: {}", self.lost_names()))),
            false => Ok(()),
        }
    }

    /// Refuses a request that has to reach every server.
    pub(super) fn refuse_lost(&self, why: &str) -> Result<()> {
        match self.lost_names() {
            lost if lost.is_empty() => Ok(()),
            lost => Err(Error::Unavailable(format!("{lost} cannot be reached: {why}"))),
        }
    }

    pub(super) fn refuse_closed(&self) -> Result<()> {
        match self.is_closed.load(Ordering::Relaxed) {
            true => Err(Error::ClientClosed { address: "several shards".to_owned() }),
            false => Ok(()),
        }
    }

    /// Stops the attempts to reach lost servers.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Takes in a server's tables. `InvalidArgument` if another one has its number.
    pub(super) fn admit(&self, shard: usize, info: &Info) -> Result<()> {
        let Some(number) = info.tables.first().map(|table| table.options.shard) else {
            return Err(Error::InvalidArgument(format!("{} has no tables", self.name(shard))));
        };
        let mut state = self.state();
        let taken = (0..self.len()).find(|other| *other != shard && state[*other].number == Some(number));
        if let Some(other) = taken {
            return Err(Error::InvalidArgument(format!(
                "{} and {} are both shard {number}: their keys cannot be told apart; start each with a number of its \
                 own, Server(..., shard=i) or `reverie serve --shard i`",
                self.name(other),
                self.name(shard)
            )));
        }
        state[shard].number = Some(number);
        state[shard].tables = Some(info.tables.iter().map(|table| table.options.clone()).collect());
        Ok(())
    }

    /// The names of all tables of all servers, sorted.
    pub(super) fn table_names(&self) -> Vec<String> {
        let state = self.state();
        let tables = state.iter().filter_map(|known| known.tables.as_ref()).flatten();
        let mut names: Vec<String> = tables.map(|table| table.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The tables as the first server that answered describes them.
    pub(super) fn tables(&self) -> Vec<TableOptions> {
        self.state().iter().find_map(|known| known.tables.clone()).unwrap_or_default()
    }

    /// A table as the first server describes it.
    ///
    /// `UnknownTable`; `Unavailable` if no server answered yet; `InvalidArgument` if it cannot be spread over servers.
    pub(super) fn table(&self, name: &str) -> Result<TableOptions> {
        let state = self.state();
        let mut found: Option<&TableOptions> = None;
        for (shard, known) in state.iter().enumerate() {
            let Some(tables) = &known.tables else { continue };
            let Some(table) = tables.iter().find(|table| table.name == name) else {
                return Err(Error::UnknownTable {
                    name: name.to_owned(),
                    known: tables.iter().map(|table| table.name.clone()).collect(),
                });
            };
            let place = format!("table '{name}' of {}", self.name(shard));
            refuse_unfit(&place, table)?;
            if found.is_some_and(|first| differ(first, table)) {
                return Err(Error::InvalidArgument(format!(
                    "{place} and that of the first shard have other samplers or limiters; make them alike"
                )));
            }
            found = found.or(Some(table));
        }
        match found {
            Some(table) => Ok(table.clone()),
            None => {
                drop(state);
                Err(Error::Unavailable(format!("no shard can be reached: {}", self.lost_names())))
            }
        }
    }

    /// Marks a server as lost: warns once, and asks it until it answers.
    pub(super) fn lose(self: &Arc<Self>, shard: usize, error: &Error) {
        self.watchers().iter().for_each(|watcher| watcher.lost(shard));
        {
            let mut state = self.state();
            if state[shard].is_lost || self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            state[shard].is_lost = true;
        }
        let (left, all) = (self.present().len(), self.len());
        tracing::warn!("{} is lost, {left} of {all} go on: {error}", self.name(shard));
        let members = Arc::downgrade(self);
        self.runtime.spawn(async move { look(&members, shard).await });
    }

    /// After a request that timed out: asks the server whether it can be reached.
    pub(super) fn doubt(self: &Arc<Self>, shard: usize) {
        {
            let known = &mut self.state()[shard];
            if known.is_lost || known.is_doubted || self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            known.is_doubted = true;
        }
        let (members, replay) = (Arc::downgrade(self), Arc::clone(self.replay(shard)));
        self.runtime.spawn(async move {
            let answered = replay.info().await;
            let Some(members) = members.upgrade() else { return };
            members.state()[shard].is_doubted = false;
            if let Err(error) = answered
                && is_lost(&error)
            {
                members.lose(shard, &error);
            }
        });
    }

    /// Takes note of the outcomes: leaves lost servers out. Any other error is the request's.
    pub(super) fn note<T>(self: &Arc<Self>, outcomes: Outcomes<T>) -> Result<Vec<(usize, T)>> {
        let (mut answers, mut failed) = (Vec::with_capacity(outcomes.len()), None);
        for (shard, outcome) in outcomes {
            match outcome {
                Ok(answer) => answers.push((shard, answer)),
                Err(error) if is_lost(&error) => self.lose(shard, &error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(answers), Err)
    }

    /// The answers of all servers that can be reached; `Unavailable` if none can.
    pub(super) async fn each<T: Unpin>(
        self: &Arc<Self>,
        end: &End,
        ask: impl Fn(&Arc<dyn Replay>) -> Ticket<T>,
    ) -> Result<Vec<(usize, T)>> {
        let asked = self.present().into_iter().map(|shard| {
            let replay = self.replay(shard);
            (shard, Arc::clone(replay), ask(replay))
        });
        let asked = asked.collect();
        let answers = self.note(end.all(asked).await)?;
        self.refuse_none()?;
        Ok(answers)
    }

    /// The server that the caller chose, or the next one that can be reached.
    pub(super) fn chosen(&self, shard: Option<usize>) -> Result<usize> {
        match shard {
            Some(shard) if shard < self.len() => Ok(shard),
            Some(shard) => Err(Error::InvalidArgument(format!(
                "shard must be below {}, the number of shards, got {shard}",
                self.len()
            ))),
            None => {
                let present = self.present();
                self.refuse_none()?;
                Ok(present[self.turns.fetch_add(1, Ordering::Relaxed) % present.len()])
            }
        }
    }

    /// The servers of the keys, each with the places of its keys. Keys of no server, or of a lost one, are left out.
    pub(super) fn by_key(&self, keys: &[i64]) -> Vec<(usize, Vec<usize>)> {
        let mut places: Vec<(usize, u8, Vec<usize>)> = {
            let state = self.state();
            let present = (0..self.len()).filter(|shard| !state[*shard].is_lost);
            present.filter_map(|shard| Some((shard, state[shard].number?, Vec::new()))).collect()
        };
        for (place, key) in keys.iter().enumerate() {
            let number = u8::try_from(key >> SHARD_AT).ok();
            if let Some((.., of_shard)) = places.iter_mut().find(|(_, known, _)| Some(*known) == number) {
                of_shard.push(place);
            }
        }
        places.into_iter().map(|(shard, _, places)| (shard, places)).filter(|(_, places)| !places.is_empty()).collect()
    }
}

/// Refuses a table that cannot be spread over servers.
fn refuse_unfit(place: &str, table: &TableOptions) -> Result<()> {
    if table.max_times_sampled > 0 {
        return Err(Error::InvalidArgument(consumes(place, table.max_times_sampled)));
    }
    let limiter = &table.limiter;
    let plain = limiter.min_diff() <= -f64::MAX && limiter.max_diff() >= f64::MAX;
    if limiter.min_size_to_sample() != 1 || !(plain || limiter.is_rationed()) {
        return Err(Error::InvalidArgument(format!(
            "{place} has a rate limiter of its own, of which the other shards know nothing; give its Table \
             rate_limiters.Rationed() or MinSize(1), and the limits to Client([...], rate_limiter=...): \
             reverie.sharding.shard_table makes both of one table"
        )));
    }
    Ok(())
}

/// The reason why a table whose items leave as they are sampled is refused.
pub(super) fn consumes(place: &str, times: u32) -> String {
    format!(
        "{place} has max_times_sampled={times}: its items leave as they are sampled, so there is no distribution over \
         all shards to keep; read each server with a Client of its own"
    )
}

fn differ(one: &TableOptions, other: &TableOptions) -> bool {
    one.sampler != other.sampler || one.limiter.is_rationed() != other.limiter.is_rationed()
}

/// Asks a lost server until it is back.
async fn look(members: &Weak<Members>, shard: usize) {
    let mut pause = FIRST_LOOK;
    loop {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LAST_LOOK);
        let Some(found) = members.upgrade() else { return };
        if found.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let asked = found.replay(shard).info();
        let Ok(Ok(info)) = tokio::time::timeout(LAST_LOOK, asked).await else { continue };
        if let Err(error) = found.admit(shard, &info) {
            tracing::error!("{} stays out: {error}", found.name(shard));
            return;
        }
        // From here on a failure makes it lost again, with another task that asks it.
        found.state()[shard].is_lost = false;
        for watcher in found.watchers() {
            if let Err(error) = watcher.join(shard).await {
                return found.lose(shard, &error);
            }
        }
        tracing::warn!("{} is back", found.name(shard));
        return;
    }
}
