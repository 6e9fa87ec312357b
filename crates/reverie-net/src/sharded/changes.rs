//! Changes of items and limits at several servers.

use super::calls::RequestEnd;
use super::group::{ShardedState, refuse_rationed};
use super::members::consumes;
use super::merge::{chosen, part};
use super::table::Table;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Change, ChangeCounts, Condition, Neighbours, Priority, Updates};
use reverie_core::{Error, Result};
use std::sync::Arc;

/// New priorities and deletes, split over servers when it is made.
pub(super) struct Mutation {
    keys: Vec<i64>,
    priorities: Vec<f64>,
    if_version: Option<Vec<u32>>,
    neighbours: Option<Neighbours>,
    deletes: Vec<i64>,
    awaited: bool,
}

impl Mutation {
    pub(super) fn new(updates: &Updates<'_>, deletes: &[i64], awaited: bool) -> Self {
        Self {
            keys: updates.keys.to_vec(),
            priorities: updates.priorities.to_vec(),
            if_version: updates.if_version.map(<[u32]>::to_vec),
            neighbours: updates.neighbours,
            deletes: deletes.to_vec(),
            awaited,
        }
    }

    /// Changes the items at the servers of their keys.
    pub(super) async fn make(
        &self,
        group: &ShardedState,
        table: &Table,
        end: &RequestEnd,
    ) -> Result<(ChangeCounts, ChangeCounts)> {
        let Self { keys, priorities, deletes, .. } = self;
        refuse_unequal(&table.name, keys, priorities, self.if_version.as_deref())?;
        refuse_priorities(group, &table.name, priorities)?;
        let (updated, deleted) = (group.members.by_key(keys), group.members.by_key(deletes));
        let mut asked = Vec::new();
        for shard in 0..group.members.len() {
            let of = |all: &[(usize, Vec<usize>)]| {
                all.iter().find(|(of, _)| *of == shard).map_or(Vec::new(), |(_, places)| places.clone())
            };
            let (updates, deleted) = (of(&updated), of(&deleted));
            if updates.is_empty() && deleted.is_empty() {
                continue;
            }
            let (some, values) = (chosen(keys, &updates), chosen(priorities, &updates));
            let versions = self.if_version.as_ref().map(|versions| chosen(versions, &updates));
            let neighbours = self.neighbours;
            let some = Updates { keys: &some, priorities: &values, if_version: versions.as_deref(), neighbours };
            let replay = Arc::clone(group.members.replay(shard));
            let ticket = replay.mutate(&table.name, &some, &chosen(deletes, &deleted), self.awaited);
            asked.push((shard, replay, ticket));
        }
        let answers = group.members.note(end.of_change().all(asked).await);
        if !deletes.is_empty() {
            table.forget();
        }
        let (mut updated, mut deleted) = (0, 0);
        for (_, (of_shard, gone)) in answers? {
            updated += of_shard.applied;
            deleted += gone.applied;
        }
        let outcome = |applied: u64, all: usize| ChangeCounts { applied, stale: all as u64 - applied };
        Ok((outcome(updated, keys.len()), outcome(deleted, deletes.len())))
    }
}

/// Deletes items for which the conditions hold, of those with `keys`, or of all.
pub(super) async fn delete_where(
    group: &ShardedState,
    table: &Table,
    end: &RequestEnd,
    keys: Option<&[i64]>,
    conditions: &[Condition],
) -> Result<ChangeCounts> {
    let Some(keys) = keys else {
        let deleted =
            group.members.each(&end.of_change(), |replay| replay.delete_where(&table.name, None, conditions)).await;
        table.forget();
        let sum = |all: ChangeCounts, one: ChangeCounts| ChangeCounts {
            applied: all.applied + one.applied,
            stale: all.stale + one.stale,
        };
        return Ok(deleted?.into_iter().map(|(_, one)| one).fold(ChangeCounts::default(), sum));
    };
    let asked = group.members.by_key(keys).into_iter().map(|(shard, places)| {
        let replay = Arc::clone(group.members.replay(shard));
        let ticket = replay.delete_where(&table.name, Some(&chosen(keys, &places)), conditions);
        (shard, replay, ticket)
    });
    let asked = asked.collect();
    let deleted = group.members.note(end.of_change().all(asked).await);
    table.forget();
    let applied = deleted?.iter().map(|(_, one)| one.applied).sum();
    Ok(ChangeCounts { applied, stale: keys.len() as u64 - applied })
}

fn refuse_unequal(table: &str, keys: &[i64], priorities: &[f64], if_version: Option<&[u32]>) -> Result<()> {
    let versions = if_version.map(<[u32]>::len);
    if keys.len() == priorities.len() && versions.is_none_or(|versions| versions == keys.len()) {
        return Ok(());
    }
    let versions = versions.map_or("none".to_owned(), |versions| versions.to_string());
    Err(Error::InvalidArgument(format!(
        "table '{table}': keys, priorities and versions must have one length, got {}, {} and {versions}",
        keys.len(),
        priorities.len()
    )))
}

/// Refuses priorities that a server would refuse, before any server has applied some.
fn refuse_priorities(group: &ShardedState, table: &str, priorities: &[f64]) -> Result<()> {
    let Some(shard) = group.members.present().first().copied() else { return Ok(()) };
    let replay = group.members.replay(shard);
    let check = |priority| replay.check_priority(table, Priority::Value(priority));
    if let Some(invalid) = priorities.iter().find(|priority| !priority.is_finite()) {
        return check(*invalid);
    }
    let ends = [f64::min, f64::max].map(|end| priorities.iter().copied().reduce(end));
    ends.into_iter().flatten().try_for_each(check)
}

/// Splits `max_size` over the servers, and replaces the limits over all of them.
pub(super) async fn configure(
    group: &Arc<ShardedState>,
    table: &Arc<Table>,
    end: &RequestEnd,
    change: Change,
) -> Result<()> {
    let Change { max_size, limiter, max_times_sampled } = change;
    let refuse = |reason: String| Err(Error::InvalidArgument(reason));
    let (name, count) = (&table.name, group.members.len());
    if let Some(times) = max_times_sampled.filter(|times| *times > 0) {
        return refuse(consumes(&format!("table '{name}' of all shards"), times));
    }
    if let Some(size) = max_size.filter(|size| *size < count as u64) {
        return refuse(format!("max_size must be at least {count}, an item for each shard, got {size}"));
    }
    if let Some(limiter) = &limiter {
        refuse_rationed(limiter)?;
    }
    if limiter.is_some() && !table.kind.is_limited {
        return refuse(format!(
            "this client does not limit table '{name}': configure it at the one that was given rate_limiter"
        ));
    }
    if table.kind.is_limited {
        refuse_unsampled(group, table, end, max_size, limiter.as_ref()).await?;
    }
    if let Some(size) = max_size {
        group.members.refuse_lost("a new max_size would not reach its part")?;
        let asked = group.members.all().map(|(shard, replay)| {
            let change = Change { max_size: Some(part(size, count, shard)), ..Change::default() };
            (shard, Arc::clone(replay), replay.configure(name, change))
        });
        let asked = asked.collect();
        let mut failed = None;
        for (shard, outcome) in end.of_change().all(asked).await {
            if let Err(error) = outcome {
                group.members.missed(shard, &error);
                failed = Some(group.members.graver(failed, shard, error));
            }
        }
        failed.map_or(Ok(()), Err)?;
        table.forget();
    }
    if let Some(limiter) = limiter {
        table.limit(limiter);
        table.refresh(end, &vec![0; count]).await?;
    }
    Ok(())
}

/// Refuses limits of a table that can never hold as many items as draws wait for.
async fn refuse_unsampled(
    group: &Arc<ShardedState>,
    table: &Arc<Table>,
    end: &RequestEnd,
    max_size: Option<u64>,
    limiter: Option<&Limiter>,
) -> Result<()> {
    let needed = match limiter {
        Some(limiter) => limiter.min_size_to_sample(),
        None => table.model().limiter().min_size_to_sample(),
    };
    let size = match max_size {
        Some(size) => size,
        None => {
            let each = group.members.each(end, |replay| replay.why(&table.name)).await?;
            each.iter().map(|(_, waits)| waits.max_size).sum()
        }
    };
    match needed > size {
        true => Err(Error::InvalidArgument(format!(
            "table '{}' over all shards: max_size {size} is below min_size_to_sample {needed}: nothing could ever be \
             sampled",
            table.name
        ))),
        false => Ok(()),
    }
}
