//! The operations of several servers as one replay.

use super::calls::{RequestEnd, is_lost};
use super::changes::{Mutation, configure, delete_where};
use super::draws::Draws;
use super::group::{Sharded, ShardedState};
use super::join::{ShardedReadOptions, figures_of, merged};
use super::merge::{chosen, infos, links, longest, one, queried, waits, whole};
use super::prefetch::{PrefetchTask, SingleServerBatches};
use super::table::Table;
use reverie_core::append::Sink;
use reverie_core::batch::{BatchOptions, ONE_BY_ONE};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::item::Item;
use reverie_core::replay::{Batches, ConnectionInfo, Info, Replay, WaitSummary};
use reverie_core::sample::{ArrayAllocator, DrawnBatch, SampleOutcome, SampleRequest, Schedule};
use reverie_core::spec::Signature;
use reverie_core::table::{
    Change, ChangeCounts, Condition, Inserts, Keys, Priority, Query, SeenTally, TableOptions, Tally, Ticket, Updates,
};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

impl Sharded {
    fn read_options(&self, read_options: &BatchOptions<'_>) -> ShardedReadOptions {
        ShardedReadOptions::new(read_options, self.0.options.allocate)
    }

    /// The only server, if this client has no limits of its own: it then draws as a client of one server.
    ///
    /// `None` at the first use of a table, which is checked then.
    fn only(&self, table: &str) -> Option<&Arc<dyn Replay>> {
        let ShardedState { members, options, .. } = &*self.0;
        let is_open = members.refuse_closed().is_ok() && members.refuse_none().is_ok();
        let is_only = members.len() == 1 && options.limiter.is_none() && is_open;
        (is_only && self.0.open_tables().contains_key(table)).then(|| members.replay(0))
    }

    /// Draws of the only server; it is lost if they fail for that reason.
    fn noted(&self, mut ticket: Ticket<SampleOutcome>) -> Ticket<SampleOutcome> {
        self.run(None, |group, end| async move {
            let outcome = match end.unless_withdrawn(&mut ticket).await {
                Some(outcome) => outcome,
                None => ticket.cancel(),
            };
            let error = outcome.as_ref().map_or_else(Some, |sampled| sampled.error.as_ref());
            if let Some(error) = error.filter(|error| is_lost(error)) {
                group.members.lose(0, error);
            }
            outcome
        })
    }

    /// The replay of the first server that can be reached.
    fn first(&self) -> Result<&Arc<dyn Replay>> {
        let first = self.0.members.present().first().copied();
        first.map(|shard| self.0.members.replay(shard)).ok_or_else(|| self.0.members.none())
    }
}

impl Replay for Sharded {
    fn ready(&self) -> Ticket<()> {
        self.run(None, |group, end| async move { group.connect(&end).await })
    }

    fn tables(&self) -> Vec<TableOptions> {
        self.0.members.tables()
    }

    /// The rows of the batch are grouped by server.
    fn sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        if let Some(replay) = self.only(table) {
            return self.noted(replay.sample(table, request, read_options, timeout));
        }
        let read_options = self.read_options(read_options);
        self.at(table, timeout, move |_, table, end| async move {
            Draws { table: &table, request, read_options: &read_options, end: &end }.batch().await
        })
    }

    fn sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        if let Some(replay) = self.only(table) {
            return self.noted(replay.sample_available(table, at_most, timeout));
        }
        let read_options = self.read_options(&ONE_BY_ONE);
        let request = SampleRequest { num_samples: at_most, ..SampleRequest::default() };
        self.at(table, timeout, move |_, table, end| async move {
            Draws { table: &table, request, read_options: &read_options, end: &end }.runs().await
        })
    }

    fn try_sample_available(&self, table: &str, at_most: usize, _: Option<Duration>) -> Ticket<SampleOutcome> {
        self.sample_available(table, at_most, Some(Duration::ZERO)).map(SampleOutcome::of_now)
    }

    fn try_sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        _: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        self.sample(table, request, read_options, Some(Duration::ZERO)).map(SampleOutcome::of_now)
    }

    fn batches(
        self: Arc<Self>,
        schedule: Schedule,
        read_options: &BatchOptions<'_>,
        allocate: ArrayAllocator,
    ) -> Result<Box<dyn Batches>> {
        schedule.parts.iter().try_for_each(|(table, _)| self.0.members.table(table).map(drop))?;
        if let Some(replay) = schedule.parts.first().and_then(|(table, _)| self.only(table)) {
            let batches = Arc::clone(replay).batches(schedule, read_options, allocate)?;
            return Ok(Box::new(SingleServerBatches::new(batches, &self.0.members)));
        }
        let read_options = ShardedReadOptions::new(read_options, allocate);
        Ok(Box::new(PrefetchTask::new(&self.0, schedule, read_options)))
    }

    fn get(&self, table: &str, keys: &[i64], read_options: &BatchOptions<'_>) -> Ticket<SampleOutcome> {
        let (read_options, keys) = (self.read_options(read_options), keys.to_vec());
        self.at(table, None, move |group, table, end| async move {
            if keys.is_empty() {
                let reason = "a batch of no items has no columns; ask for at least one";
                return Err(Error::InvalidArgument(reason.to_owned()));
            }
            let (mut asked, mut places) = (Vec::new(), vec![Vec::new(); group.members.len()]);
            for (shard, of_shard) in group.members.by_key(&keys) {
                let (replay, some) = (Arc::clone(group.members.replay(shard)), chosen(&keys, &of_shard));
                let ticket = replay.get(&table.name, &some, &read_options.options());
                asked.push((shard, replay, ticket));
                places[shard] = of_shard;
            }
            let (mut parts, mut rows) = (Vec::new(), Vec::new());
            for (shard, sampled) in group.members.note(whole(end.all(asked).await))? {
                parts.push(one(sampled)?);
                rows.append(&mut places[shard]);
            }
            let mut found = vec![false; keys.len()];
            rows.iter().for_each(|row| found[*row] = true);
            if let Some(missing) = found.iter().position(|found| !found) {
                return Err(Error::UnknownKey { table: table.name.clone(), key: keys[missing].into() });
            }
            let batch = merged(parts, &rows, &read_options.options(), read_options.allocate)?;
            Ok(SampleOutcome { batches: vec![batch], error: None })
        })
    }

    /// Each server answers for one moment of its own. `limit` and the order apply to the items of all servers.
    fn query(&self, table: &str, query: &Query) -> Ticket<SampleOutcome> {
        let query = query.clone();
        self.at(table, None, move |group, table, end| async move {
            let asked = group.members.ask(|replay| replay.query(&table.name, &query));
            let found = group.members.note(whole(end.all(asked).await))?;
            group.members.refuse_none()?;
            // For the clocks.
            table.refresh(&end, &vec![0; group.members.len()]).await?;
            let found = found.into_iter().map(|(shard, sampled)| {
                let ahead = table.model().clock_ahead(shard);
                Ok((figures_of(one(sampled)?), ahead))
            });
            let found = found.collect::<Result<Vec<_>>>()?;
            let size = table.model().size();
            Ok(SampleOutcome { batches: vec![DrawnBatch::Items(queried(found, size, &query))], error: None })
        })
    }

    fn max_items(&self) -> usize {
        self.0.members.all().map(|(_, replay)| replay.max_items()).min().unwrap_or(usize::MAX)
    }

    fn info(&self) -> Ticket<Info> {
        self.run(None, |group, end| async move {
            group.connect(&end).await?;
            let each = group.members.each(&end, |replay| replay.info()).await?;
            let tables: Vec<_> = group.open_tables().values().cloned().collect();
            Ok(infos(each, &group.members, &tables))
        })
    }

    fn checkpoint(&self) -> Ticket<Vec<String>> {
        self.run(None, |group, end| async move {
            group.connect(&end).await?;
            let taken =
                group.members.every(&end, "a checkpoint would miss its items", |replay| replay.checkpoint()).await?;
            Ok(taken.into_iter().flat_map(|(_, paths)| paths).collect())
        })
    }

    fn durable(&self) -> Ticket<()> {
        self.run(None, |group, end| async move {
            group.connect(&end).await?;
            let why = "its part may not be on the disk";
            group.members.every(&end, why, |replay| replay.durable()).await.map(drop)
        })
    }

    fn link(&self) -> Option<ConnectionInfo> {
        links(&self.0.members)
    }

    fn why(&self, table: &str) -> Ticket<WaitSummary> {
        self.at(table, None, |group, table, end| async move {
            table.refresh(&end, &vec![0; group.members.len()]).await?;
            let each = group.members.each(&end, |replay| replay.why(&table.name)).await?;
            Ok(waits(&table, each))
        })
    }

    /// Changes items server by server, not in one decision. Keys of servers that cannot be reached are stale.
    fn mutate(
        &self,
        table: &str,
        updates: &Updates<'_>,
        deletes: &[i64],
        awaited: bool,
    ) -> Ticket<(ChangeCounts, ChangeCounts)> {
        let mutation = Mutation::new(updates, deletes, awaited);
        let make = async move |group: Arc<ShardedState>, table: Arc<Table>, end: RequestEnd| {
            mutation.make(&group, &table, &end).await
        };
        match awaited {
            true => self.at(table, None, make),
            false => self.unawaited(table, make),
        }
    }

    /// Items of lost servers stay; their keys are stale.
    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<ChangeCounts> {
        let (keys, conditions) = (keys.map(<[i64]>::to_vec), conditions.to_vec());
        self.at(table, None, move |group, table, end| async move {
            delete_where(&group, &table, &end, keys.as_deref(), &conditions).await
        })
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        self.at(table, None, move |group, table, end| async move {
            table.refresh(&end, &vec![0; group.members.len()]).await?;
            let allowed = table.model().allowed(num_samples);
            Ok(allowed == num_samples)
        })
    }

    /// Over all servers if this client has their limits; else each server must allow the number.
    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        self.at(table, None, move |group, table, end| async move {
            if !table.kind.is_limited {
                let can = group.members.each(&end, |replay| replay.can_insert(&table.name, num_inserts)).await?;
                return Ok(can.into_iter().all(|(_, can)| can));
            }
            table.refresh(&end, &vec![0; group.members.len()]).await?;
            Ok(table.inserts_left().is_none_or(|left| left >= num_inserts))
        })
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        self.at(table, None, |group, table, end| async move {
            group.members.every(&end.of_change(), "its items would stay", |replay| replay.reset(&table.name)).await?;
            table.begin(&end).await
        })
    }

    /// `max_size` is split over the servers; the limiter is the one over all of them, whose counts go on.
    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        self.at(table, None, move |group, table, end| async move { configure(&group, &table, &end, change).await })
    }

    fn tally(&self, _: &str, _: Option<(u64, u64)>) -> Ticket<Tally> {
        Ticket::done(Err(not_one_table()))
    }

    fn changed_tally(&self, _: &str, _: SeenTally, _: Duration) -> Ticket<Tally> {
        Ticket::done(Err(not_one_table()))
    }

    fn insert_outcome(&self, number: u64) -> Ticket<Keys> {
        let reason = format!("no insert with the number {number} has an unknown outcome: ask the shard's own client");
        Ticket::done(Err(Error::InvalidArgument(reason)))
    }

    fn grace(&self) -> Duration {
        longest(&self.0.members, |replay| replay.grace())
    }

    fn patience(&self) -> Option<Duration> {
        self.0.members.all().filter_map(|(_, replay)| replay.patience()).max()
    }

    fn no_response_reason(&self, waited: Duration) -> String {
        match self.0.members.refuse_lost("") {
            Ok(()) => format!("the shards have not answered for {:.1} s", waited.as_secs_f64()),
            Err(_) => format!("{} cannot be reached", self.0.members.lost_names()),
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.0.members.all().filter_map(|(_, replay)| replay.round_trip()).max()
    }

    fn server_lags(&self) -> bool {
        self.0.members.all().any(|(_, replay)| replay.server_lags())
    }

    fn restarts(&self) -> u64 {
        self.0.members.all().map(|(_, replay)| replay.restarts()).sum()
    }
}

/// Inserts go to one server each, in turns. Writers use the replay of one server; see [`Sharded::place`].
impl Sink for Sharded {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.0.members.replay(self.0.members.chosen(None)?).insert(table, items)
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.first()?.check(table, items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.first()?.check_priority(table, priority)
    }

    fn signature(&self, table: &str) -> Result<Option<Signature>> {
        self.first()?.signature(table)
    }

    fn wait_reason(&self, table: &str) -> Ticket<String> {
        self.at(table, None, |_, table, _| async move { Ok(table.why()) })
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        self.first()?.compression(table)
    }

    fn meter(&self) -> &Arc<Meter> {
        self.0.members.replay(0).meter()
    }
}

fn not_one_table() -> Error {
    Error::InvalidArgument("a client of several shards cannot be one shard of another client".to_owned())
}
