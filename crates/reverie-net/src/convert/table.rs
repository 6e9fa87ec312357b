//! Tables: their configuration, their figures, and the requests that wait at them.

use super::{broken, dtype, present, structure};
use crate::proto;
use reverie_core::chunk::Compression;
use reverie_core::replay::WaitSummary;
use reverie_core::spec::{ColumnSignature, Signature};
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::{Mass, SelectorOptions};
use reverie_core::table::{
    AGE_BUCKETS, Change, CopyStats, InsertOnSample, SeenTally, Stats, TIMES_BUCKETS, TableInfo, TableOptions, Tally,
    Times, WaitEntry,
};
use reverie_core::{Error, Result};
use std::time::Duration;

/// Encodes a configuration without its seeds.
pub fn encode_options(options: &TableOptions) -> proto::TableOptions {
    proto::TableOptions {
        name: options.name.clone(),
        sampler: Some(encode_selector(&options.sampler)),
        remover: Some(encode_selector(&options.remover)),
        max_size: options.max_size,
        limiter: Some(encode_limiter(&options.limiter)),
        max_times_sampled: options.max_times_sampled,
        signature: options.signature.as_ref().map(encode_signature),
        max_bytes: options.max_bytes,
        compression: encode_compression(options.compression).into(),
        shard: u32::from(options.shard),
        extensions: options.extensions.iter().map(encode_extension).collect(),
    }
}

/// Decodes a configuration and checks that a table can have it; its seeds are zero.
pub fn decode_options(message: proto::TableOptions) -> Result<TableOptions> {
    let options = TableOptions {
        name: message.name,
        sampler: decode_selector(present(message.sampler, "sampler")?)?,
        remover: decode_selector(present(message.remover, "remover")?)?,
        max_size: message.max_size,
        limiter: decode_limiter(&present(message.limiter, "limiter")?).map_err(as_broken)?,
        max_times_sampled: message.max_times_sampled,
        signature: message.signature.map(decode_signature).transpose()?,
        max_bytes: message.max_bytes,
        compression: decode_compression(message.compression)?,
        shard: u8::try_from(message.shard).map_err(|_| broken(format!("the shard {}", message.shard)))?,
        sampler_seed: 0,
        constructed: None,
        remover_seed: 0,
        extensions: message.extensions.into_iter().map(decode_extension).collect::<Result<_>>()?,
    };
    options.validate().map_err(as_broken)?;
    Ok(options)
}

fn encode_extension(extension: &InsertOnSample) -> proto::InsertOnSample {
    let timeout = extension.timeout.map(|timeout| timeout.as_secs_f64());
    proto::InsertOnSample { target: extension.target.clone(), timeout }
}

fn decode_extension(message: proto::InsertOnSample) -> Result<InsertOnSample> {
    Ok(InsertOnSample { target: message.target, timeout: message.timeout.map(seconds).transpose()? })
}

fn as_broken(error: Error) -> Error {
    broken(error.to_string())
}

fn encode_selector(options: &SelectorOptions) -> proto::Selector {
    let (number, exponent) = options.parts();
    proto::Selector { kind: number.into(), exponent }
}

fn decode_selector(message: proto::Selector) -> Result<SelectorOptions> {
    let number = u8::try_from(message.kind).ok();
    let selector = number.and_then(|number| SelectorOptions::from_parts(number, message.exponent));
    selector.ok_or_else(|| broken(format!("the selector {} is unknown to this version", message.kind)))
}

fn encode_compression(compression: Compression) -> proto::Compression {
    match compression {
        Compression::None => proto::Compression::None,
        Compression::Lz4 => proto::Compression::Lz4,
        Compression::Zstd => proto::Compression::Zstd,
        Compression::Auto => proto::Compression::Auto,
        Compression::AutoSpeed => proto::Compression::AutoSpeed,
        Compression::AutoSize => proto::Compression::AutoSize,
    }
}

fn decode_compression(compression: i32) -> Result<Compression> {
    Ok(match proto::Compression::try_from(compression) {
        Ok(proto::Compression::None) => Compression::None,
        Ok(proto::Compression::Lz4) => Compression::Lz4,
        Ok(proto::Compression::Zstd) => Compression::Zstd,
        Ok(proto::Compression::Auto) => Compression::Auto,
        Ok(proto::Compression::AutoSpeed) => Compression::AutoSpeed,
        Ok(proto::Compression::AutoSize) => Compression::AutoSize,
        Err(_) => return Err(broken(format!("the compression {compression} is unknown to this version"))),
    })
}

/// Encodes a limiter.
pub fn encode_limiter(limiter: &Limiter) -> proto::Limiter {
    proto::Limiter {
        samples_per_insert: limiter.samples_per_insert(),
        min_size_to_sample: limiter.min_size_to_sample(),
        min_diff: limiter.min_diff(),
        max_diff: limiter.max_diff(),
    }
}

/// Decodes a limiter. `InvalidArgument` for invalid numbers.
pub fn decode_limiter(message: &proto::Limiter) -> Result<Limiter> {
    let proto::Limiter { samples_per_insert, min_size_to_sample, min_diff, max_diff } = *message;
    Limiter::new(samples_per_insert, min_size_to_sample, min_diff, max_diff)
}

/// Encodes a signature.
pub fn encode_signature(signature: &Signature) -> proto::Signature {
    let column = |column: &ColumnSignature| proto::ColumnSignature {
        path: column.path.clone(),
        dtype: column.dtype.name().to_owned(),
        shape: column.shape.iter().map(|size| size.map_or(-1, |size| size as i64)).collect(),
    };
    proto::Signature {
        structure: Some(structure::encode(&signature.structure)),
        columns: signature.columns.iter().map(column).collect(),
    }
}

/// Decodes a signature.
pub fn decode_signature(message: proto::Signature) -> Result<Signature> {
    let structure = structure::decode(present(message.structure, "structure")?)?;
    let column = |message: proto::ColumnSignature| {
        let dtype = dtype(&message.dtype, &message.path)?;
        let size = |size: &i64| match size {
            -1 => Ok(None),
            size => {
                usize::try_from(*size).map(Some).map_err(|_| broken(format!("an axis has the invalid size {size}")))
            }
        };
        let shape = message.shape.iter().map(size).collect::<Result<_>>()?;
        Ok(ColumnSignature { path: message.path, dtype, shape })
    };
    let columns = message.columns.into_iter().map(column).collect::<Result<Vec<_>>>()?;
    if columns.len() != structure.num_leaves() {
        return Err(broken(format!(
            "a signature has {} columns for the {} leaves of its structure",
            columns.len(),
            structure.num_leaves()
        )));
    }
    Ok(Signature { columns, structure })
}

/// Encodes a shard's tally.
pub fn encode_tally(tally: &Tally) -> proto::Tally {
    let Counters { inserts, samples, deletes } = tally.counters;
    proto::Tally {
        shard: u32::from(tally.shard),
        incarnation: tally.incarnation,
        size: tally.size,
        mass: tally.mass.total,
        zeros: tally.mass.zeros,
        smallest_probability: tally.smallest_probability,
        inserts,
        samples,
        deletes,
        ration: tally.ration,
        waiting_inserts: tally.waiting_inserts,
        now: tally.now.as_secs_f64(),
    }
}

/// Encodes what was seen of a shard.
pub fn encode_seen(seen: &SeenTally) -> proto::Seen {
    let SeenTally { incarnation, inserts, ration, waiting_inserts } = *seen;
    proto::Seen { incarnation, inserts, ration, waiting_inserts }
}

/// Decodes what was seen of a shard.
pub fn decode_seen(message: &proto::Seen) -> SeenTally {
    let proto::Seen { incarnation, inserts, ration, waiting_inserts } = *message;
    SeenTally { incarnation, inserts, ration, waiting_inserts }
}

/// Decodes a shard's tally; refuses impossible counts and masses.
pub fn decode_tally(message: proto::Tally) -> Result<Tally> {
    let proto::Tally { inserts, samples, deletes, mass: total, zeros, .. } = message;
    let probability = |p: f64| p > 0.0 && p <= 1.0;
    if total.is_nan() || total < 0.0 || !message.smallest_probability.is_none_or(probability) {
        return Err(broken(format!("a mass of {total}, its smallest part {:?}", message.smallest_probability)));
    }
    if inserts.checked_sub(deletes) != Some(message.size) {
        return Err(broken(format!("{inserts} inserts and {deletes} deletes for {} items", message.size)));
    }
    Ok(Tally {
        shard: u8::try_from(message.shard).map_err(|_| broken(format!("the shard {}", message.shard)))?,
        incarnation: message.incarnation,
        size: message.size,
        mass: Mass { total, zeros },
        smallest_probability: message.smallest_probability,
        counters: Counters { inserts, samples, deletes },
        ration: message.ration,
        waiting_inserts: message.waiting_inserts,
        now: std::time::Duration::try_from_secs_f64(message.now)
            .map_err(|_| broken(format!("a clock shows the invalid time {}", message.now)))?,
    })
}

/// Encodes a change of limits.
pub fn encode_change(table: &str, change: &Change) -> proto::Configure {
    proto::Configure {
        table: table.to_owned(),
        max_size: change.max_size,
        limiter: change.limiter.as_ref().map(encode_limiter),
        max_times_sampled: change.max_times_sampled,
    }
}

/// Decodes a table and its change of limits.
pub fn decode_change(message: proto::Configure) -> Result<(String, Change)> {
    let limiter = message.limiter.as_ref().map(decode_limiter).transpose()?;
    let change = Change { max_size: message.max_size, limiter, max_times_sampled: message.max_times_sampled };
    Ok((message.table, change))
}

/// Encodes a table's figures.
pub fn encode_info(info: &TableInfo) -> proto::TableInfo {
    let TableInfo { counters, stats, times, .. } = info;
    proto::TableInfo {
        options: Some(encode_options(&info.options)),
        inserts: counters.inserts,
        samples: counters.samples,
        deletes: counters.deletes,
        size: info.size,
        size_bytes: info.bytes,
        num_episodes: info.num_episodes,
        evicted: stats.evicted,
        sampled_present: stats.sampled_present,
        sampled_unique: stats.sampled_unique,
        updated: stats.updated,
        stale_updates: stats.stale_updates,
        stale_deletes: stats.stale_deletes,
        single_steps: stats.single_steps,
        deleted_episodes: stats.deleted_episodes,
        age_histogram: stats.age_histogram.to_vec(),
        age_sum: stats.age_sum as f64,
        times_histogram: stats.times_histogram.to_vec(),
        draws_of_left: stats.draws_of_left,
        inserting: times.inserting.as_secs_f64(),
        sampling: times.sampling.as_secs_f64(),
        inserts_blocked: times.inserts_blocked.as_secs_f64(),
        samples_blocked: times.samples_blocked.as_secs_f64(),
        alive: times.alive.as_secs_f64(),
        pending_inserts: info.pending_inserts,
        pending_samples: info.pending_samples,
        leased: info.leased,
        max_priority: info.max_priority,
        copies: info.copies.iter().map(encode_copied).collect(),
    }
}

fn encode_copied(copied: &CopyStats) -> proto::Copied {
    let CopyStats { inserted, dropped, waiting } = *copied;
    proto::Copied { inserted, dropped, waiting }
}

fn decode_copied(message: &proto::Copied) -> CopyStats {
    let proto::Copied { inserted, dropped, waiting } = *message;
    CopyStats { inserted, dropped, waiting }
}

/// Decodes a table's figures.
pub fn decode_info(message: proto::TableInfo) -> Result<TableInfo> {
    let age_histogram: [u64; AGE_BUCKETS] = message
        .age_histogram
        .try_into()
        .map_err(|buckets: Vec<u64>| broken(format!("{} buckets of ages, want {AGE_BUCKETS}", buckets.len())))?;
    let times_histogram = match message.times_histogram.is_empty() {
        // An older server does not count them.
        true => [0; TIMES_BUCKETS],
        false => message
            .times_histogram
            .try_into()
            .map_err(|buckets: Vec<u64>| broken(format!("{} buckets of draws, want {TIMES_BUCKETS}", buckets.len())))?,
    };
    let options = decode_options(present(message.options, "options")?)?;
    if message.copies.len() != options.extensions.len() {
        let (copies, extensions) = (message.copies.len(), options.extensions.len());
        return Err(broken(format!("copies of {copies} extensions of {extensions}")));
    }
    Ok(TableInfo {
        options,
        counters: Counters { inserts: message.inserts, samples: message.samples, deletes: message.deletes },
        size: message.size,
        bytes: message.size_bytes,
        num_episodes: message.num_episodes,
        stats: Stats {
            evicted: message.evicted,
            sampled_present: message.sampled_present,
            sampled_unique: message.sampled_unique,
            updated: message.updated,
            stale_updates: message.stale_updates,
            stale_deletes: message.stale_deletes,
            single_steps: message.single_steps,
            deleted_episodes: message.deleted_episodes,
            age_histogram,
            age_sum: message.age_sum as u128,
            times_histogram,
            draws_of_left: message.draws_of_left,
        },
        times: Times {
            inserting: seconds(message.inserting)?,
            sampling: seconds(message.sampling)?,
            inserts_blocked: seconds(message.inserts_blocked)?,
            samples_blocked: seconds(message.samples_blocked)?,
            alive: seconds(message.alive)?,
        },
        pending_inserts: message.pending_inserts,
        pending_samples: message.pending_samples,
        leased: message.leased,
        max_priority: message.max_priority,
        copies: message.copies.iter().map(decode_copied).collect(),
    })
}

/// Decodes a time: a finite, non-negative number of seconds.
pub fn seconds(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| broken(format!("a duration of {seconds} seconds is invalid")))
}

/// Encodes which requests wait, and for what.
pub fn encode_waits(waits: WaitSummary) -> proto::Why {
    let waiting = |waiting: &WaitEntry| proto::Waiting {
        since: waiting.since.as_secs_f64(),
        wanted: waiting.wanted,
        done: waiting.done,
    };
    let Counters { inserts, samples, deletes } = waits.counters;
    proto::Why {
        table: waits.table,
        size: waits.size,
        max_size: waits.max_size,
        inserts,
        samples,
        deletes,
        waiting_inserts: waits.inserts.iter().map(waiting).collect(),
        waiting_samples: waits.samples.iter().map(waiting).collect(),
        insert_reason: waits.insert_reason.unwrap_or_default(),
        sample_reason: waits.sample_reason.unwrap_or_default(),
        stuck: waits.stuck,
        closed: waits.closed,
        leased: waits.leased,
        num_waiting_inserts: waits.num_inserts,
        num_waiting_samples: waits.num_samples,
        text: waits.text,
    }
}

/// Decodes which requests wait, and for what.
pub fn decode_waits(message: proto::Why) -> Result<WaitSummary> {
    let waiting = |queue: Vec<proto::Waiting>| -> Result<Vec<WaitEntry>> {
        let decoded = queue.into_iter().map(|waiting| {
            let proto::Waiting { since, wanted, done } = waiting;
            Ok(WaitEntry { since: seconds(since)?, wanted, done })
        });
        decoded.collect()
    };
    let reason = |text: String| (!text.is_empty()).then_some(text);
    // A server of an earlier version has no more requests than it lists.
    let at_least = |number: u64, listed: usize| number.max(listed as u64);
    Ok(WaitSummary {
        num_inserts: at_least(message.num_waiting_inserts, message.waiting_inserts.len()),
        num_samples: at_least(message.num_waiting_samples, message.waiting_samples.len()),
        table: message.table,
        size: message.size,
        max_size: message.max_size,
        closed: message.closed,
        leased: message.leased,
        counters: Counters { inserts: message.inserts, samples: message.samples, deletes: message.deletes },
        inserts: waiting(message.waiting_inserts)?,
        samples: waiting(message.waiting_samples)?,
        insert_reason: reason(message.insert_reason),
        sample_reason: reason(message.sample_reason),
        stuck: message.stuck,
        text: message.text,
    })
}
