//! Servers that fail in random ways under random requests: every request ends, and all is well afterwards.

use crate::support::{Host, alone, joined, ratio_limiter, table};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use reverie_core::batch::BatchOptions;
use reverie_core::replay::Replay;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Query, Updates};
use reverie_core::{Error, Result};
use reverie_net::sharded::Sharded;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

struct RandomFaults {
    random: Xoshiro256PlusPlus,
    hosts: Vec<Arc<Host>>,
    keys: Vec<i64>,
}

impl RandomFaults {
    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    /// A change of a server's state, or of its items.
    fn inject_fault(&mut self) {
        let shard = self.below(3) as usize;
        let host = Arc::clone(&self.hosts[shard]);
        let flip = self.below(2) == 0;
        match self.below(6) {
            0 => host.log.is_down.store(flip, SeqCst),
            1 => host.log.is_silent.store(flip, SeqCst),
            2 => host.log.is_slow.store(flip, SeqCst),
            3 if host.tables.get("t").unwrap().can_insert(2) => self.keys.extend(host.fill(&[1.0, 2.0])),
            4 => _ = host.tables.get("t").unwrap().reset(),
            _ => host.log.late_tallies.store(1, SeqCst),
        }
    }

    fn repair_all(&self) {
        for host in &self.hosts {
            for flag in [&host.log.is_down, &host.log.is_silent, &host.log.is_slow] {
                flag.store(false, SeqCst);
            }
        }
    }
}

async fn request(client: Arc<Sharded>, kind: u64, keys: Vec<i64>) -> Result<()> {
    let ended = timeout(120 * SECOND, request_of(client, kind, keys)).await;
    ended.unwrap_or_else(|_| panic!("a request of kind {kind} does not end"))
}

/// Makes a request of this kind.
async fn request_of(client: Arc<Sharded>, kind: u64, keys: Vec<i64>) -> Result<()> {
    let (options, since) = (BatchOptions::default(), Instant::now());
    let draw = |num_samples, without_replacement| SampleRequest {
        num_samples,
        without_replacement,
        ..SampleRequest::default()
    };
    let updates = Updates { keys: &keys, priorities: &vec![3.0; keys.len()], ..Updates::default() };
    let drawn = |sampled: SampleOutcome, most: usize| {
        assert!(sampled.batches.iter().map(DrawnBatch::len).sum::<usize>() <= most);
        sampled.error.map_or(Ok(()), Err)
    };
    // A draw of a server that is silent takes its patience and a second, and each step may meet another one.
    match kind {
        0 | 1 => {
            let limit = Duration::from_millis(700 * kind);
            let sampled = client.sample("t", draw(8, false), &options, Some(limit)).await;
            assert!(since.elapsed() <= limit + SECOND + Duration::from_millis(50), "{:?}", since.elapsed());
            drawn(sampled?, 8)
        }
        2 => drawn(client.sample("t", draw(3, true), &options, Some(20 * SECOND)).await?, 3),
        3 => drawn(client.sample_available("t", 5, Some(5 * SECOND)).await?, 5),
        4 => client.mutate("t", &updates, &[], true).await.map(drop),
        5 => client.query("t", &Query::default()).await.map(drop),
        6 => client.place(None, &["t"], 1, Some(5 * SECOND)).await.map(drop),
        7 => client.info().await.map(drop),
        8 => client.get("t", &keys[..keys.len().min(3)], &options).await.map(drop),
        _ => client.why("t").await.map(drop),
    }
}

async fn run_storm(seed: u64, limiter: Option<Limiter>) {
    let hosts: Vec<_> = (0..3).map(|shard| Arc::new(Host::new(shard, table(limiter.is_some())))).collect();
    let mut storm = RandomFaults { random: Xoshiro256PlusPlus::seed_from_u64(seed), hosts, keys: Vec::new() };
    let client = joined(&storm.hosts, alone(limiter));
    client.ready().await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..60 {
        storm.inject_fault();
        let kind = storm.below(10);
        running.spawn(request(Arc::clone(&client), kind, storm.keys.clone()));
        if storm.below(3) == 0 {
            let pause = storm.below(4000);
            sleep(Duration::from_millis(pause)).await;
        }
    }
    while let Some(ended) = running.join_next().await {
        match ended.unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
            Ok(()) | Err(Error::Deadline(_) | Error::Unavailable(_) | Error::UnknownKey { .. }) => {}
            // A read of no keys, while there are none.
            Err(Error::InvalidArgument(text)) if text.contains("no items") => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    storm.repair_all();
    sleep(15 * SECOND).await;
    let present = client.info().await.unwrap().shards.iter().filter(|shard| shard.present).count();
    assert_eq!(present, 3, "seed {seed}");
    client.place(Some(0), &["t"], 2, None).await.unwrap();
    storm.hosts.iter().for_each(|host| _ = host.tables.get("t").unwrap().reset());
    assert!(timeout(60 * SECOND, client.reset("t")).await.unwrap().is_ok(), "seed {seed}");
    client.place(Some(0), &["t"], 2, None).await.unwrap();
    storm.hosts[0].fill(&[1.0, 1.0]);
    let sampled = timeout(
        60 * SECOND,
        client.sample(
            "t",
            SampleRequest { num_samples: 4, ..SampleRequest::default() },
            &BatchOptions::default(),
            None,
        ),
    );
    assert_eq!(sampled.await.unwrap().unwrap().batches[0].len(), 4, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn every_request_ends_whatever_happens_to_servers_and_all_are_back_afterwards() {
    for seed in 0..20 {
        run_storm(seed, None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_ends_under_limits_too() {
    for seed in 0..20 {
        run_storm(seed, Some(ratio_limiter(4.0, 1, 40.0))).await;
    }
}
