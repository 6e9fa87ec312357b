//! Draws from one table of all servers, in rounds: each makes the draws that the limits allow now.

use super::calls::RequestEnd;
use super::join::{Part, ShardedReadOptions, joined, probabilities};
use super::model::{KeptDraws, Split};
use super::round::{Round, ShardRequest, asks, fail, plain};
use super::table::Table;
use reverie_core::batch::Ragged;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest, Windows};
use reverie_core::{Error, Result};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;

/// Draws in a row without a window after which a request fails.
const MOST_SHORT: usize = 1000;
/// Rounds in a row that meet servers with fewer items than reported, after which a request waits for a change.
const MOST_OUTDATED: usize = 16;

/// A request for draws from one table of all servers.
pub(super) struct Draws<'a> {
    pub(super) table: &'a Table,
    pub(super) request: SampleRequest,
    pub(super) read_options: &'a ShardedReadOptions,
    pub(super) end: &'a RequestEnd,
}

/// The draws of a request, and the reason why there are not all of them.
pub(super) struct DrawsOutcome {
    pub(super) made: Vec<Part>,
    pub(super) error: Option<Error>,
}

/// The method by which draws are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrawMethod {
    /// Draws by the masses that the servers report first.
    Asks,
    /// Draws by the known masses, if they can be corrected afterwards.
    Guesses,
    /// Draws as runs of items of the same form.
    Runs,
}

/// The draws that the rounds of a request have made.
struct Progress {
    made: Vec<Part>,
    done: usize,
    /// Draws in a row whose items were too short for a window.
    short: usize,
    /// Rounds in a row whose draws met a server that had fewer items than it had reported.
    outdated: usize,
    /// The last round made no draw, but the next may make some without a change of the tables.
    repeats: bool,
}

impl Progress {
    /// Takes note of a round that made `new` draws: without any, it is repeated if its figures were out of date.
    fn note_round(&mut self, is_outdated: bool, new: usize) {
        self.outdated = if is_outdated && new == 0 { self.outdated + 1 } else { 0 };
        self.repeats |= (1..=MOST_OUTDATED).contains(&self.outdated);
    }
}

impl Draws<'_> {
    /// One batch. At the end, `SampleOutcome` has the draws made by then, and the reason as an error.
    pub(super) async fn batch(&self) -> Result<SampleOutcome> {
        let DrawsOutcome { made, error } = self.parts().await?;
        let batches = match made.is_empty() {
            true => Vec::new(),
            false => vec![joined(made, &self.read_options.options(), self.read_options.allocate)?],
        };
        Ok(SampleOutcome { batches, error })
    }

    /// The draws that are allowed now, at least one: a batch for each run of items of the same form.
    pub(super) async fn runs(&self) -> Result<SampleOutcome> {
        let DrawsOutcome { made, error } = self.rounds(1, self.request.num_samples, DrawMethod::Runs).await?;
        let run = |part| joined(vec![part], &self.read_options.options(), self.read_options.allocate);
        let batches = made.into_iter().map(run).collect::<Result<_>>()?;
        Ok(SampleOutcome { batches, error })
    }

    /// All draws, or those made by the end. Draws without replacement are made all at once or not at all.
    pub(super) async fn parts(&self) -> Result<DrawsOutcome> {
        let SampleRequest { num_samples, without_replacement, windows, .. } = self.request;
        if without_replacement && self.read_options.ragged == Ragged::Values {
            let reason = "ragged=\"values\" has no row for each draw, of which draws without replacement over several \
                          shards leave some out: pass ragged=\"pad\", or draw with replacement";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
        let plain = self.read_options.ragged == Ragged::Refuse && !without_replacement && windows.is_none();
        let method = if plain && self.table.kind.discards { DrawMethod::Guesses } else { DrawMethod::Asks };
        let mut outcome = self.rounds(num_samples, num_samples, method).await?;
        if let (Some(Error::Deadline(why)), true) = (&mut outcome.error, without_replacement) {
            let size = self.table.model().size();
            if size < num_samples as u64 {
                *why += &format!(" There are {size} items, and {num_samples} were asked for without replacement.");
            }
        }
        Ok(outcome)
    }

    /// Makes `least` to `most` draws, in as many rounds as it takes.
    async fn rounds(&self, least: usize, most: usize, method: DrawMethod) -> Result<DrawsOutcome> {
        let (table, since, mut queued) = (self.table, Instant::now(), None);
        let mut progress = Progress { made: Vec::new(), done: 0, short: 0, outdated: 0, repeats: false };
        while progress.done < least {
            table.members().refuse_closed()?;
            // From here on no wake-up is missed.
            let mut wake = pin!(table.next_wake());
            wake.as_mut().enable();
            let before = progress.done;
            match self.round(most - progress.done, method, &mut progress).await {
                // A server does not answer, and is not lost: the draws of the others are kept.
                Err(error @ Error::Deadline(_)) => {
                    return Ok(DrawsOutcome {
                        made: progress.made,
                        error: (!self.end.is_withdrawn()).then_some(error),
                    });
                }
                // Also of a request that was withdrawn: a kill may undo its draws.
                Err(error @ Error::NotCommitted { .. }) => {
                    return Ok(DrawsOutcome { made: progress.made, error: Some(error) });
                }
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            let is_over = self.end.is_over();
            if progress.done > before || (progress.repeats && !is_over) {
                continue;
            }
            if is_over {
                let error = (!self.end.is_withdrawn()).then(|| Error::Deadline(table.why()));
                return Ok(DrawsOutcome { made: progress.made, error });
            }
            let queued = queued.get_or_insert_with(|| table.waits(since, most as u64));
            queued.has(progress.done as u64);
            table.wait_for_change(self.end, wake.as_mut()).await?;
        }
        Ok(DrawsOutcome { made: progress.made, error: None })
    }

    /// Makes the draws that the limits allow now.
    async fn round(&self, count: usize, method: DrawMethod, progress: &mut Progress) -> Result<()> {
        let table = self.table;
        let _turn = table.turn(self.end).await?;
        let before = progress.done;
        progress.repeats = false;
        if method == DrawMethod::Guesses && table.is_fresh() {
            self.guess(count, progress).await?;
        }
        if progress.done == before {
            // By the present masses, not those of the last batch: a server that was empty then would be left out.
            table.exchange(self.end, &vec![0; table.members().len()]).await?;
            let allowed = table.model().allowed(count as u64) as usize;
            if allowed > 0 {
                match self.request.without_replacement {
                    _ if method == DrawMethod::Runs => self.draw_runs(allowed, progress).await?,
                    true if allowed == count => self.distinct(count, progress).await?,
                    true => {}
                    false => self.draw(allowed, progress).await?,
                }
            }
            table.refreshed();
        }
        // Also if nothing can be drawn: a draw that waits for inserts may have to admit some.
        table.grant();
        Ok(())
    }

    async fn ask_all(&self, asks: Vec<(usize, ShardRequest)>) -> Round {
        Round::ask(self.table, self.end, self.read_options, asks).await
    }

    /// Makes draws by the present masses, none of which waits for a table.
    ///
    /// There are fewer if a server fails or lost its items, or if items are too short for a window.
    async fn draw(&self, count: usize, progress: &mut Progress) -> Result<()> {
        let windows = self.request.windows;
        let split = self.table.model().split(count as u64);
        let Some(Split { counts, mut probabilities }) = split else { return Ok(()) };
        let asks = asks(&counts, |count| SampleRequest { windows, ..plain(count) });
        let round = self.ask_all(asks).await;
        // A server that gives no window may still have items.
        let empty = round.among_others(&counts, &mut probabilities, windows.is_none());
        let made = round.drawn.into_iter().map(|(shard, drawn)| (shard, drawn.len(), drawn)).collect();
        let new = self.take(made, &probabilities, progress);
        progress.note_round(empty, new);
        fail(round.error)?;
        if let (Some(windows), true) = (windows, round.lost.is_empty()) {
            self.count_short(count, new, windows, progress)?;
        }
        self.table.members().refuse_none()
    }

    /// Like `draw`, one part for each run of items of the same form.
    async fn draw_runs(&self, count: usize, progress: &mut Progress) -> Result<()> {
        let (table, asked_at, timeout) = (self.table, self.table.now(), self.end.answer());
        let split = table.model().split(count as u64);
        let Some(Split { counts, mut probabilities }) = split else { return Ok(()) };
        let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let asked = some.map(|(shard, count)| {
            let replay = Arc::clone(table.members().replay(shard));
            // Waits for no item: the turn is held.
            let ticket = replay.try_sample_available(&table.name, *count as usize, timeout);
            (shard, replay, ticket)
        });
        let asked = asked.collect();
        let mut round = Round::default();
        for (shard, outcome) in self.end.all(asked).await {
            if table.members().is_restarted(shard) {
                round.lost.push(shard);
                continue;
            }
            let (batches, error) = match outcome {
                Ok(SampleOutcome { batches, error }) => (batches, error),
                Err(error) => (Vec::new(), Some(error)),
            };
            if let Some(tally) = batches.last().and_then(DrawnBatch::tally) {
                table.received(shard, tally, asked_at);
            }
            round.drawn.extend(batches.into_iter().map(|drawn| (shard, drawn)));
            round.note(table, shard, error);
        }
        let empty = round.among_others(&counts, &mut probabilities, true);
        let made = round.drawn.into_iter().map(|(shard, drawn)| (shard, drawn.len(), drawn)).collect();
        let new = self.take(made, &probabilities, progress);
        progress.note_round(empty, new);
        fail(round.error)?;
        table.members().refuse_none()
    }

    /// Like `draw`, spread by the last known tallies, in one round trip for nearly all draws.
    ///
    /// If masses have changed since, some of the draws are repeated, so that all are spread by the current masses.
    /// Makes none if the servers must be asked first. Not for tables whose draws depend on each other.
    async fn guess(&self, count: usize, progress: &mut Progress) -> Result<()> {
        let table = self.table;
        let Some(split) = self.known(count as u64) else { return Ok(()) };
        let present: Vec<usize> = {
            let model = table.model();
            (0..model.len()).filter(|shard| model.is_present(*shard)).collect()
        };
        let ask = |count| if count > 0 { ShardRequest::Draws(plain(count)) } else { ShardRequest::Tally };
        let asked = present.iter().map(|shard| (*shard, ask(split.counts[*shard]))).collect();
        let round = self.ask_all(asked).await;
        if round.error.is_some() {
            // A server did not answer in time: the draws of the others are all that there is time for.
            let Split { counts, mut probabilities } = split;
            round.among_others(&counts, &mut probabilities, true);
            let made = round.drawn.into_iter().map(|(shard, drawn)| (shard, drawn.len(), drawn)).collect();
            self.take(made, &probabilities, progress);
            return fail(round.error);
        }
        let Round { drawn, lost, .. } = round;
        let gave = |shard: usize| drawn.iter().find(|(of, _)| *of == shard).map_or(0, |(_, drawn)| drawn.len() as u64);
        let wanting = present.iter().any(|shard| gave(*shard) < split.counts[*shard]);
        let kept = match lost.is_empty() && !wanting {
            true => table.model().keep(&split),
            false => None,
        };
        let Some(KeptDraws { mut counts, again, probabilities }) = kept else {
            // A server is gone, or empty by now: the draws are dropped, and made again at those that are left.
            drawn.iter().for_each(|(shard, drawn)| table.model().discard(*shard, drawn.len() as u64));
            return table.members().refuse_none();
        };
        for (shard, drawn) in &drawn {
            table.model().discard(*shard, drawn.len() as u64 - counts[*shard]);
        }
        let Round { drawn: more, error, .. } = self.ask_all(asks(&again, plain)).await;
        let first = drawn.into_iter().map(|(shard, drawn)| (shard, std::mem::take(&mut counts[shard]) as usize, drawn));
        let all = first.chain(more.into_iter().map(|(shard, drawn)| (shard, drawn.len(), drawn))).collect();
        self.take(all, &probabilities, progress);
        fail(error)?;
        table.members().refuse_none()
    }

    /// The split of draws by the known tallies; `None` if the servers must be asked first.
    ///
    /// That is if a tally is missing, if a server was restarted, if there are no items or the limits allow fewer draws,
    /// or if a server is in this process, where asking costs no more than drawing.
    fn known(&self, count: u64) -> Option<Split> {
        let mut model = self.table.model();
        let mut present = (0..model.len()).filter(|shard| model.is_present(*shard));
        let members = self.table.members();
        let known = present.all(|shard| model.tally(shard).is_some() && !members.is_restarted(shard));
        if !self.table.kind.is_remote || !known || model.size() == 0 || model.allowed(count) < count {
            return None;
        }
        model.split(count)
    }

    /// Draws without replacement, as from one table: all of them, or none if items are too few or a server fails.
    ///
    /// Each server draws as many as it can, and the draws that come first over all servers are used.
    async fn distinct(&self, count: usize, progress: &mut Progress) -> Result<()> {
        let table = self.table;
        // As many as are wanted, also of a server with fewer items: more may arrive meanwhile.
        let wanted: Vec<u64> = {
            let model = table.model();
            if model.size() < count as u64 {
                return Ok(());
            }
            (0..model.len()).map(|shard| if model.is_present(shard) { count as u64 } else { 0 }).collect()
        };
        let asks = asks(&wanted, |count| SampleRequest { without_replacement: true, ..plain(count) });
        let Round { drawn, lost, error } = self.ask_all(asks).await;
        let mut offered = vec![Vec::new(); wanted.len()];
        drawn.iter().for_each(|(shard, drawn)| offered[*shard] = probabilities(drawn));
        let raced = match lost.is_empty() && error.is_none() {
            true => table.model().race(&offered, count as u64),
            false => None,
        };
        let is_outdated = raced.is_none() && lost.is_empty() && error.is_none();
        let none = || Split { counts: vec![0; wanted.len()], probabilities: vec![0.0; wanted.len()] };
        let Split { counts, probabilities } = raced.unwrap_or_else(none);
        for (shard, drawn) in &drawn {
            table.model().discard(*shard, drawn.len() as u64 - counts[*shard]);
        }
        let made = drawn.into_iter().map(|(shard, drawn)| (shard, counts[shard] as usize, drawn)).collect();
        let new = self.take(made, &probabilities, progress);
        progress.note_round(is_outdated, new);
        fail(error)?;
        table.members().refuse_none()
    }

    /// Adds the first draws of each server, as many as given; returns how many they are.
    fn take(&self, drawn: Vec<(usize, usize, DrawnBatch)>, probabilities: &[f64], progress: &mut Progress) -> usize {
        let (size, smallest) = {
            let model = self.table.model();
            (model.size(), model.smallest_probability(probabilities))
        };
        let before = progress.done;
        for (shard, len, drawn) in drawn.into_iter().filter(|(_, len, _)| *len > 0) {
            progress.done += len;
            progress.made.push(Part { drawn, len, chance: probabilities[shard], size, smallest });
        }
        progress.done - before
    }

    /// `Ragged` after too many draws in a row without an item that a window fits into.
    fn count_short(&self, asked: usize, made: usize, windows: Windows, progress: &mut Progress) -> Result<()> {
        // It does not wait because items are too short for a window.
        progress.repeats = made == 0;
        progress.short = if made > 0 { 0 } else { progress.short + asked };
        if progress.short < MOST_SHORT {
            return Ok(());
        }
        let reason = format!(
            "table '{}' over {} shards: none of the last {} draws holds a window of {} steps; ask for shorter windows, \
             write longer items, or pass borders=\"pad\"",
            self.table.name,
            self.table.members().present().len(),
            progress.short,
            windows.steps()
        );
        Err(Error::Ragged { path: String::new(), reason })
    }
}
