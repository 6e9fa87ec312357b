//! The servers of a replay: which can be reached, and which one a key belongs to.

mod lost;
mod restarted;

pub(super) use lost::MAX_RETRY_PAUSE;

use super::calls::{RequestEnd, ShardOutcomes, ShardTickets};
use futures_util::future::BoxFuture;
use reverie_core::replay::{Info, Replay};
use reverie_core::table::{TableOptions, Ticket};
use reverie_core::{Error, Result};
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// A key's bits below those of its server.
const SHARD_AT: u32 = 57;

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
    state: Mutex<Vec<ShardState>>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    /// The tables in use: a server that is back or was restarted must have them.
    in_use: Mutex<HashSet<String>>,
    turns: AtomicUsize,
    is_closed: AtomicBool,
    closing: Notify,
    runtime: Handle,
}

struct Member {
    replay: Arc<dyn Replay>,
    name: String,
    /// [`Replay::restarts`] when it was last admitted.
    restarts: AtomicU64,
}

/// The state of a server.
#[derive(Default)]
struct ShardState {
    is_lost: bool,
    /// The server is being asked whether it can be reached.
    is_doubted: bool,
    /// The server's number in keys; `None` before its first answer.
    number: Option<u8>,
    /// The number of its last answer, also if that was refused.
    reported: Option<u8>,
    tables: Option<Vec<TableOptions>>,
    /// The reason why it is not used although it answers.
    refusal: Option<Error>,
}

impl Members {
    pub(super) fn new(shards: Vec<(Arc<dyn Replay>, String)>, runtime: &Handle) -> Self {
        let state = shards.iter().map(|_| ShardState::default()).collect();
        let member = |(shard, (replay, address))| Member {
            replay,
            name: format!("shard {shard} ({address})"),
            restarts: AtomicU64::new(0),
        };
        let members: Vec<_> = shards.into_iter().enumerate().map(member).collect();
        // Clients begin at different servers.
        let mut first = [0; 8];
        let _ = getrandom::fill(&mut first);
        Self {
            turns: AtomicUsize::new(usize::from_le_bytes(first) % members.len()),
            members,
            state: Mutex::new(state),
            watchers: Mutex::default(),
            in_use: Mutex::default(),
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            runtime: runtime.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Vec<ShardState>> {
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

    pub(super) fn is_lost(&self, shard: usize) -> bool {
        self.state()[shard].is_lost
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
            true => Err(self.none()),
            false => Ok(()),
        }
    }

    /// The error if no server can be reached.
    pub(super) fn none(&self) -> Error {
        Error::Unavailable(format!("no shard can be reached: {}", self.lost_names()))
    }

    /// Refuses a request that has to reach every server.
    pub(super) fn refuse_lost(&self, why: &str) -> Result<()> {
        match self.lost_names() {
            lost if lost.is_empty() => Ok(()),
            lost => Err(Error::Unavailable(format!("{lost} cannot be reached: {why}"))),
        }
    }

    pub(super) fn refuse_closed(&self) -> Result<()> {
        match self.is_closed.load(Ordering::SeqCst) {
            true => Err(closed()),
            false => Ok(()),
        }
    }

    /// Stops the attempts to reach lost servers, and ends the waits of [`Members::unless_closed`].
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// The outcome of a request; `ClientClosed` if the client is closed before.
    pub(super) async fn unless_closed<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let (mut request, mut closing) = (pin!(request), pin!(self.closing.notified()));
        poll_fn(|context| match request.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => match closing.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(closed())),
                // It may have been closed before the notification was awaited.
                Poll::Pending => match self.refuse_closed() {
                    Err(error) => Poll::Ready(Err(error)),
                    Ok(()) => Poll::Pending,
                },
            },
        })
        .await
    }

    /// Takes in a server's tables. `InvalidArgument` if another one has its number.
    ///
    /// `restarts`: [`Replay::restarts`] before the server was asked.
    pub(super) fn admit(&self, shard: usize, info: &Info, restarts: u64) -> Result<()> {
        let Some(number) = info.tables.first().map(|table| table.options.shard) else {
            return Err(Error::InvalidArgument(format!("{} has no tables", self.name(shard))));
        };
        let mut state = self.state();
        state[shard].reported = Some(number);
        // A server that was refused does not hold a number that it was never admitted with: the server that was, and is
        // restarted, is used again.
        let holds = |known: &ShardState| {
            known.reported == Some(number) && (known.refusal.is_none() || known.number == Some(number))
        };
        let taken = (0..self.len()).find(|other| *other != shard && holds(&state[*other]));
        if let Some(other) = taken {
            return Err(Error::InvalidArgument(format!(
                "{} and {} are both shard {number}: their keys cannot be distinguished; start each with a number of its \
                 own, Server(..., shard=i) or `reverie serve --shard i`",
                self.name(other),
                self.name(shard)
            )));
        }
        state[shard].number = Some(number);
        state[shard].tables = Some(info.tables.iter().map(|table| table.options.clone()).collect());
        self.members[shard].restarts.fetch_max(restarts, Ordering::Relaxed);
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
                    "{place} and that of the first shard have different samplers or limiters; make them equal"
                )));
            }
            found = found.or(Some(table));
        }
        match found {
            Some(table) => Ok(table.clone()),
            None => {
                drop(state);
                Err(self.none())
            }
        }
    }

    /// Takes note of the outcomes: leaves lost servers out. Any other error is the request's.
    pub(super) fn note<T>(self: &Arc<Self>, outcomes: ShardOutcomes<T>) -> Result<Vec<(usize, T)>> {
        let (mut answers, mut failed) = (Vec::with_capacity(outcomes.len()), None);
        for (shard, outcome) in outcomes {
            match outcome {
                Ok(answer) => answers.push((shard, answer)),
                Err(error) if self.missed(shard, &error) => {}
                Err(error) => failed = Some(self.graver(failed, shard, error)),
            }
        }
        failed.map_or(Ok(answers), Err)
    }

    /// The error of the request: the first one, unless a server has not committed its work and others are late; the
    /// caller must know of that one.
    pub(super) fn graver(&self, first: Option<Error>, shard: usize, error: Error) -> Error {
        match (first, error) {
            (None | Some(Error::Deadline(_)), Error::NotCommitted { keys, why }) => {
                Error::NotCommitted { keys, why: format!("{}: {why}", self.name(shard)) }
            }
            (first, error) => first.unwrap_or(error),
        }
    }

    /// Requests to all servers that can be reached.
    pub(super) fn ask<T>(&self, ask: impl Fn(&Arc<dyn Replay>) -> Ticket<T>) -> ShardTickets<T> {
        let asked = self.present().into_iter().map(|shard| {
            let replay = self.replay(shard);
            (shard, Arc::clone(replay), ask(replay))
        });
        asked.collect()
    }

    /// The answers of all servers that can be reached; `Unavailable` if none can.
    pub(super) async fn each<T: Unpin + Default>(
        self: &Arc<Self>,
        end: &RequestEnd,
        ask: impl Fn(&Arc<dyn Replay>) -> Ticket<T>,
    ) -> Result<Vec<(usize, T)>> {
        let answers = self.note(end.all(self.ask(ask)).await)?;
        self.refuse_none()?;
        Ok(answers)
    }

    /// The answers of all servers. `Unavailable`, with the reason, if a server cannot be reached or is lost meanwhile.
    pub(super) async fn every<T: Unpin + Default>(
        self: &Arc<Self>,
        end: &RequestEnd,
        why: &str,
        ask: impl Fn(&Arc<dyn Replay>) -> Ticket<T>,
    ) -> Result<Vec<(usize, T)>> {
        self.refuse_lost(why)?;
        let answers = self.note(end.all(self.ask(ask)).await)?;
        let missing = (0..self.len()).find(|shard| answers.iter().all(|(answered, _)| answered != shard));
        match missing {
            Some(shard) => Err(Error::Unavailable(format!("{} cannot be reached: {why}", self.name(shard)))),
            None => Ok(answers),
        }
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
                if present.is_empty() {
                    return Err(self.none());
                }
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

fn closed() -> Error {
    Error::ClientClosed { address: "several shards".to_owned() }
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
