//! One answer of the answers of several servers: queries, figures, requests that wait.

use super::calls::ShardOutcomes;
use super::members::Members;
use super::table::Table;
use reverie_core::replay::{ConnectionInfo, Info, ShardInfo, WaitSummary};
use reverie_core::sample::{DrawnBatch, Draws, SampleOutcome};
use reverie_core::table::{Field, Query, TableInfo};
use reverie_core::{Error, Result};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The one batch of an answer.
pub(super) fn one(sampled: SampleOutcome) -> Result<DrawnBatch> {
    let SampleOutcome { mut batches, .. } = sampled;
    batches.pop().ok_or_else(|| Error::Protocol("an answer without a batch".to_owned()))
}

/// Answers with one batch each; an error that came with batches is the error of its answer.
pub(super) fn whole(outcomes: ShardOutcomes<SampleOutcome>) -> ShardOutcomes<SampleOutcome> {
    let whole = |sampled: SampleOutcome| match sampled.error {
        Some(error) => Err(error),
        None => Ok(sampled),
    };
    outcomes.into_iter().map(|(shard, outcome)| (shard, outcome.and_then(whole))).collect()
}

/// The items of all servers that a query found, as one table would return them.
///
/// `ahead`: seconds by which each server's clock is ahead of a common one. `size`: items of all servers. Times stay
/// those of the servers' own clocks.
pub(super) fn queried(found: Vec<(Draws, f64)>, size: u64, query: &Query) -> Draws {
    let mut all = Draws::default();
    let mut inserted: Vec<f64> = Vec::new();
    for (draws, ahead) in found {
        inserted.extend(draws.inserted_at.iter().map(|at| *at as f64 / 1e9 - ahead));
        all.append(draws);
    }
    let value = |draw: usize| match query.order {
        None => inserted[draw],
        Some((Field::Priority, _)) => all.priorities[draw],
        Some((Field::TimesSampled, _)) => f64::from(all.times_sampled[draw]),
        Some((Field::Version, _)) => f64::from(all.versions[draw]),
        // The youngest have the smallest age.
        Some((Field::Age, _)) => -inserted[draw],
    };
    let descends = query.order.is_some_and(|(_, descends)| descends);
    let mut draws: Vec<usize> = (0..all.len()).collect();
    draws.sort_by(|a, b| {
        let (one, other) = (value(*a), value(*b));
        let by_value = if descends { other.total_cmp(&one) } else { one.total_cmp(&other) };
        // Equal values are in order of insertion.
        by_value.then(inserted[*a].total_cmp(&inserted[*b])).then(Ordering::Equal)
    });
    draws.truncate(query.limit.unwrap_or(usize::MAX));
    let mut chosen = all.figures_of(&draws);
    chosen.table_sizes.fill(size);
    chosen
}

/// The figures of all servers: sums, and those of each.
pub(super) fn infos(infos: Vec<(usize, Info)>, members: &Members, tables: &[Arc<Table>]) -> Info {
    let mut shards: Vec<ShardInfo> = (members.all())
        .map(|(shard, replay)| ShardInfo {
            link: replay.link(),
            tables: tables.iter().map(|table| (table.name.clone(), table.figures(shard))).collect(),
            ..ShardInfo::default()
        })
        .collect();
    let total = |limit: fn(&Info) -> Option<u64>| infos.iter().map(|(_, info)| limit(info)).sum::<Option<u64>>();
    let sum = |figure: fn(&Info) -> u64| infos.iter().map(|(_, info)| figure(info)).sum::<u64>();
    let known = |name: &str| tables.iter().find(|table| table.name == name);
    let of_first = infos.first().map_or(&[][..], |(_, info)| &info.tables);
    let summed = of_first.iter().filter_map(|first| {
        let name = &first.options.name;
        let of_each: Option<Vec<_>> = infos.iter().map(|(_, info)| named(info, name)).collect();
        Some(table_info(&of_each?, known(name).map(|table| &**table)))
    });
    let mut all = Info {
        tables: summed.collect(),
        live_bytes: sum(|info| info.live_bytes),
        max_bytes: total(|info| info.max_bytes),
        network_bytes: sum(|info| info.network_bytes),
        max_network_bytes: total(|info| info.max_network_bytes),
        max_memory: total(|info| info.max_memory),
        num_grpc_connections: sum(|info| info.num_grpc_connections),
        num_local_connections: sum(|info| info.num_local_connections),
        // A client needs a place at each server.
        max_connections: infos.iter().filter_map(|(_, info)| info.max_connections).min(),
        journal: None,
        disk: None,
        shards: Vec::new(),
    };
    for (shard, info) in infos {
        (shards[shard].present, shards[shard].info) = (true, Some(info));
    }
    all.shards = shards;
    all
}

fn named<'a>(info: &'a Info, name: &str) -> Option<&'a TableInfo> {
    info.tables.iter().find(|table| table.options.name == name)
}

/// A table's figures over all servers.
fn table_info(of_each: &[&TableInfo], table: Option<&Table>) -> TableInfo {
    let mut all = of_each[0].clone();
    for one in &of_each[1..] {
        all.options.max_size = all.options.max_size.saturating_add(one.options.max_size);
        all.options.max_bytes = all.options.max_bytes.zip(one.options.max_bytes).map(|(a, b)| a.saturating_add(b));
        all.counters.inserts += one.counters.inserts;
        all.counters.samples += one.counters.samples;
        all.counters.deletes += one.counters.deletes;
        all.size += one.size;
        all.bytes += one.bytes;
        all.num_episodes += one.num_episodes;
        all.pending_inserts += one.pending_inserts;
        all.pending_samples += one.pending_samples;
        all.leased += one.leased;
        all.max_priority = all.max_priority.max(one.max_priority);
        all.stats.add(&one.stats);
        all.times.add(&one.times);
        for (copied, more) in all.copies.iter_mut().zip(&one.copies) {
            copied.inserted += more.inserted;
            copied.dropped += more.dropped;
            copied.waiting += more.waiting;
        }
    }
    let Some(table) = table else { return all };
    let model = table.model();
    let discarded = (0..model.len()).filter(|shard| model.is_present(*shard)).map(|shard| model.discarded(shard));
    all.counters.samples = all.counters.samples.saturating_sub(discarded.sum());
    if table.kind.is_limited {
        all.options.limiter = *model.limiter();
    }
    all
}

/// The state of all connections; `None` if all tables are in this process.
pub(super) fn links(members: &Members) -> Option<ConnectionInfo> {
    let links: Vec<Option<ConnectionInfo>> = members.all().map(|(_, replay)| replay.link()).collect();
    let (present, all) = (members.present().len(), members.len());
    let transport = |link: &Option<ConnectionInfo>| match link {
        Some(link) => link.transport.clone(),
        None => Some(Cow::Borrowed("in-process")),
    };
    let transports: BTreeSet<Cow<'static, str>> = links.iter().filter_map(transport).collect();
    let sum = |figure: fn(&ConnectionInfo) -> u64| links.iter().flatten().map(figure).sum();
    Some(ConnectionInfo {
        transport: (!transports.is_empty()).then(|| transports.into_iter().collect::<Vec<_>>().join(" ").into()),
        reason: format!("{present} of {all} shards can be reached"),
        connected: present == all,
        reconnects: sum(|link| link.reconnects),
        server_restarts: sum(|link| link.server_restarts),
        bytes_sent: sum(|link| link.bytes_sent),
        bytes_received: sum(|link| link.bytes_received),
        kept_bytes: sum(|link| link.kept_bytes),
        max_kept_bytes: sum(|link| link.max_kept_bytes),
    })
}

/// The requests that wait at a table, at each server and here.
pub(super) fn waits(table: &Table, each: Vec<(usize, WaitSummary)>) -> WaitSummary {
    let text = table.why();
    let (size, counters, sample_reason, mut insert_reason) = {
        let (model, limited) = (table.model(), table.kind.is_limited);
        let counters = model.counters();
        let blocked = model.limiter().blocked_insert(&counters).filter(|_| limited);
        let sample = model.blocked_sample().map(|block| block.to_string());
        (model.size(), counters, sample, blocked.map(|block| block.to_string()))
    };
    // An insert goes to any one server: it is blocked only if all of them block it.
    if insert_reason.is_none() && each.iter().all(|(_, waits)| waits.insert_reason.is_some()) {
        insert_reason = each.first().and_then(|(_, waits)| waits.insert_reason.clone());
    }
    let of_each: Vec<String> =
        each.iter().map(|(shard, waits)| format!("{}: {}", table.members().name(*shard), waits.text)).collect();
    let samples = table.waiting();
    let mut all = WaitSummary {
        table: table.name.clone(),
        size,
        counters,
        num_samples: samples.len() as u64,
        samples,
        insert_reason,
        sample_reason,
        text: format!("{text} {}", of_each.join(" ")),
        ..WaitSummary::default()
    };
    for (_, waits) in each {
        all.max_size += waits.max_size;
        all.leased += waits.leased;
        all.closed |= waits.closed;
        all.stuck |= waits.stuck;
        all.num_inserts += waits.num_inserts;
        all.num_samples += waits.num_samples;
        all.inserts.extend(waits.inserts);
        all.samples.extend(waits.samples);
    }
    all
}

/// A server's part of a number that is split over all of them.
pub(super) fn part(whole: u64, num_shards: usize, shard: usize) -> u64 {
    let (count, shard) = (num_shards as u64, shard as u64);
    whole / count + u64::from(shard < whole % count)
}

/// The longest of the servers' times.
pub(super) fn longest(members: &Members, time: impl Fn(&dyn reverie_core::replay::Replay) -> Duration) -> Duration {
    members.all().map(|(_, replay)| time(&**replay)).max().unwrap_or_default()
}

/// The values at these places.
pub(super) fn chosen<T: Copy>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|place| all[*place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverie_core::item::Key;

    /// Items of these times, in seconds, and priorities; the time is the key.
    fn found(items: &[(f64, f64)]) -> Draws {
        let zeros = vec![0; items.len()];
        Draws {
            keys: items.iter().map(|(at, _)| Key::from(*at as i64)).collect(),
            probabilities: vec![0.0; items.len()],
            priorities: items.iter().map(|(_, priority)| *priority).collect(),
            table_sizes: vec![0; items.len()],
            times_sampled: zeros.clone(),
            versions: zeros,
            inserted_at: items.iter().map(|(at, _)| (at * 1e9) as u64).collect(),
            ..Draws::default()
        }
    }

    #[test]
    fn found_items_are_in_the_order_of_one_table_whose_clock_is_common() {
        let keys = |order, limit| {
            // The second clock is 100 s ahead: 103 is 3 there.
            let of_each = vec![(found(&[(1.0, 2.0), (5.0, 7.0)]), 0.0), (found(&[(103.0, 2.0), (104.0, 2.0)]), 100.0)];
            let all = queried(of_each, 4, &Query { order, limit, ..Query::default() });
            assert!(all.table_sizes.iter().all(|size| *size == 4));
            all.keys.iter().map(|key| key.get()).collect::<Vec<_>>()
        };
        assert_eq!(keys(None, None), [1, 103, 104, 5]);
        assert_eq!(keys(Some((Field::Age, true)), Some(3)), [1, 103, 104]);
        assert_eq!(keys(Some((Field::Age, false)), Some(2)), [5, 104]);
        assert_eq!(keys(Some((Field::Priority, false)), None), [1, 103, 104, 5]);
        assert_eq!(keys(Some((Field::Priority, true)), None), [5, 1, 103, 104]);
    }

    #[test]
    fn parts_of_a_number_add_up_to_it() {
        assert_eq!((0..3).map(|shard| part(11, 3, shard)).collect::<Vec<_>>(), [4, 4, 3]);
    }
}
