//! Servers that were restarted while their clients waited for them, on a clock of the test's own.

use crate::full_journal::FullJournal;
use crate::support::{Host, Log, alone, joined, not_committed, ratio_limiter, table};
use reverie_core::batch::BatchOptions;
use reverie_core::replay::Replay;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, TableOptions, Tables, Updates};
use reverie_core::{Error, Result};
use reverie_net::sharded::Sharded;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Two servers with an item each, and a client of both.
async fn known() -> ([Arc<Host>; 2], Arc<Sharded>) {
    let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(false))));
    hosts.iter().for_each(|host| _ = host.fill(&[1.0]));
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    (hosts, client)
}

fn sample(client: &Sharded, timeout: Option<Duration>) -> impl Future<Output = Result<SampleOutcome>> + use<> {
    let request = SampleRequest { num_samples: 32, ..SampleRequest::default() };
    client.sample("t", request, &BatchOptions::default(), timeout)
}

/// The numbers of the servers of the draws, and how many draws there are.
fn drawn(sampled: &SampleOutcome) -> (HashSet<u8>, usize) {
    let keys = sampled.batches.iter().flat_map(|batch| match batch {
        DrawnBatch::Items(draws) => draws.keys.clone(),
        _ => panic!("items"),
    });
    let numbers: Vec<u8> = keys.map(|key| key.shard()).collect();
    (numbers.iter().copied().collect(), numbers.len())
}

/// Tables that a server at the address of server 1 may have, and that do not fit server 0.
fn unfit() -> [TableOptions; 4] {
    let shard = |options| TableOptions { shard: 1, ..options };
    [
        shard(TableOptions { name: "u".to_owned(), ..table(false) }),
        shard(TableOptions { limiter: ratio_limiter(4.0, 1, 40.0), ..table(false) }),
        shard(TableOptions { sampler: SelectorOptions::Uniform, ..table(false) }),
        TableOptions { shard: 0, ..table(false) },
    ]
}

fn restart(host: &Host, as_another: Option<TableOptions>) {
    *host.log.describes.lock().unwrap() = as_another;
    host.log.restarts.fetch_add(1, SeqCst);
}

async fn present(client: &Sharded) -> Vec<bool> {
    client.info().await.unwrap().shards.iter().map(|shard| shard.present).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_that_does_not_fit_is_left_out_at_once_until_one_fits() {
    for other in unfit() {
        let (hosts, client) = known().await;
        // Masses are known: the next draws are made by them.
        sample(&client, None).await.unwrap();
        restart(&hosts[1], Some(other));
        assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([0]), 32));
        assert_eq!(present(&client).await, [true, false]);
        for _ in 0..3 {
            assert_eq!(client.place(None, &["t"], 1, None).await, Ok(0));
        }
        assert!(client.place(Some(1), &["t"], 1, None).await.is_err(), "the caller chose it");
        restart(&hosts[1], None);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([0, 1]), 32));
        assert_eq!(client.place(Some(1), &["t"], 1, None).await, Ok(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_inserts_checks_a_restarted_server_before_it_chooses_it() {
    for other in unfit() {
        let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(false))));
        let client = joined(&hosts, alone(None));
        assert_eq!(client.place(Some(1), &["t"], 1, None).await, Ok(1));
        restart(&hosts[1], Some(other));
        assert!(client.place(Some(1), &["t"], 1, None).await.is_err());
        for _ in 0..3 {
            assert_eq!(client.place(None, &["t"], 1, None).await, Ok(0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn draws_of_a_server_that_is_restarted_meanwhile_are_not_used_before_it_is_admitted() {
    let (hosts, client) = known().await;
    sample(&client, None).await.unwrap();
    let log = Arc::clone(&hosts[1].log);
    *hosts[1].log.before_draws.lock().unwrap() = Some(Box::new(move |_| {
        *log.describes.lock().unwrap() =
            Some(TableOptions { sampler: SelectorOptions::Uniform, shard: 1, ..table(false) });
        log.restarts.fetch_add(1, SeqCst);
    }));
    let sampled = sample(&client, None).await.unwrap();
    assert_eq!(drawn(&sampled), (HashSet::from([0]), 32));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_that_fits_is_drawn_from_at_once_and_is_never_lost() {
    let (hosts, client) = known().await;
    sample(&client, None).await.unwrap();
    restart(&hosts[1], None);
    assert_eq!(drawn(&sample(&client, Some(SECOND)).await.unwrap()), (HashSet::from([0, 1]), 32));
    assert_eq!(present(&client).await, [true, true]);
    let only = [Arc::clone(&hosts[0])];
    let client = joined(&only, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    restart(&hosts[0], None);
    assert!(client.can_sample("t", 1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_that_it_has_no_such_table_any_more_is_left_out() {
    let (_hosts, client) = known().await;
    let unknown = |name: &str| Error::UnknownTable { name: name.to_owned(), known: Vec::new() };
    client.failed(1, &unknown("never"));
    assert_eq!(present(&client).await, [true, true], "the caller asked for a table that no server has");
    client.failed(1, &unknown("t"));
    assert_eq!(present(&client).await, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_insert_of_a_client_that_grants_nothing_waits_for_no_other_server() {
    let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(true))));
    let client = joined(&hosts, alone(None));
    client.ready().await.unwrap();
    hosts[0].log.is_silent.store(true, SeqCst);
    assert_eq!(client.place(Some(1), &["t"], 1, Some(SECOND)).await, Ok(1));
    let unknown = client.place(Some(1), &["u"], 1, Some(SECOND)).await;
    assert!(matches!(unknown, Err(Error::UnknownTable { .. })), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn draws_that_a_journal_has_not_committed_come_with_the_reason_also_if_they_were_withdrawn() {
    let (hosts, client) = known().await;
    // Masses are known: the next draws are the first requests.
    sample(&client, None).await.unwrap();
    hosts.iter().for_each(|host| host.log.is_uncommitted.store(true, SeqCst));
    let sampled = sample(&client, Some(SECOND)).await.unwrap();
    assert_eq!((drawn(&sampled), sampled.error.clone()), ((HashSet::from([0, 1]), 32), Some(not_committed())));
    let DrawnBatch::Items(draws) = &sampled.batches[0] else { panic!("items") };
    assert!(draws.probabilities.iter().all(|probability| *probability > 0.0));
    // The draws are on their way when the caller leaves.
    hosts.iter().for_each(|host| host.log.is_slow.store(true, SeqCst));
    let (request, read_options) =
        (SampleRequest { num_samples: 32, ..SampleRequest::default() }, BatchOptions::default());
    let mut ticket = client.sample("t", request, &read_options, None);
    assert!(ticket.poll().is_none());
    tokio::time::sleep(SECOND).await;
    let SampleOutcome { batches, error } = ticket.cancel().unwrap();
    assert_eq!((batches[0].len(), error), (32, Some(not_committed())));
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_waits_is_woken_by_an_insert_into_a_server_that_was_restarted_meanwhile() {
    let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(false))));
    let client = joined(&hosts, alone(None));
    let waiting = tokio::spawn(sample(&client, None));
    tokio::time::sleep(SECOND).await;
    restart(&hosts[1], None);
    hosts[1].fill(&[1.0]);
    let sampled = tokio::time::timeout(60 * SECOND, waiting).await.expect("it ends").unwrap().unwrap();
    assert_eq!(drawn(&sampled), (HashSet::from([1]), 32));
}

#[tokio::test(start_paused = true)]
async fn servers_that_were_restarted_with_each_others_numbers_are_used_again() {
    let swapped = |number: u8| Some(TableOptions { shard: 1 - number, ..table(false) });
    // Both are asked at once.
    let (hosts, client) = known().await;
    [0, 1].into_iter().for_each(|number: u8| restart(&hosts[usize::from(number)], swapped(number)));
    assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([0, 1]), 32));
    assert_eq!(present(&client).await, [true, true]);
    // Each is asked when it can be reached again.
    let (hosts, client) = known().await;
    for (number, host) in (0..).zip(&hosts) {
        host.log.is_down.store(true, SeqCst);
        client.failed(usize::from(number), &Error::Unavailable("it is gone".to_owned()));
        restart(host, swapped(number));
    }
    tokio::time::sleep(5 * SECOND).await;
    for host in &hosts {
        host.log.is_down.store(false, SeqCst);
        tokio::time::sleep(5 * SECOND).await;
    }
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(present(&client).await, [true, true]);
    assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([0, 1]), 32));
}

#[tokio::test(start_paused = true)]
async fn a_server_is_used_after_its_restart_also_if_another_one_was_refused_for_its_number() {
    let (hosts, client) = known().await;
    restart(&hosts[0], Some(TableOptions { shard: 1, ..table(false) }));
    assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([1]), 32));
    restart(&hosts[1], None);
    assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([1]), 32));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(present(&client).await, [false, true]);
    restart(&hosts[0], None);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(drawn(&sample(&client, None).await.unwrap()), (HashSet::from([0, 1]), 32));
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_change_waits_for_silent_servers_no_longer_than_for_one() {
    let hosts = [0, 1, 2, 3, 4].map(|shard| Arc::new(Host::new(shard, table(false))));
    let client = joined(&hosts, alone(None));
    assert!(!client.can_sample("t", 1).await.unwrap());
    hosts.iter().for_each(|host| host.log.is_silent.store(true, SeqCst));
    let mut change = client.reset("t");
    assert!(change.poll().is_none());
    change.withdraw();
    let since = tokio::time::Instant::now();
    let late = change.await;
    assert!(matches!(late, Err(Error::Deadline(_))), "{late:?}");
    assert!(since.elapsed() < 2 * SECOND, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_withdrawn_change_has_the_reason_of_a_server_that_has_not_committed_it_also_if_another_is_silent() {
    let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(false))));
    let keys: Vec<i64> = hosts.iter().flat_map(|host| host.fill(&[1.0])).collect();
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    let journaled = hosts[1].tables.get("t").unwrap();
    assert!(journaled.set_durable(Arc::new(FullJournal::default())));
    hosts[0].log.is_silent.store(true, SeqCst);
    let nothing = Updates { keys: &[], priorities: &[], if_version: None, neighbours: None };
    let late = [
        client.mutate("t", &nothing, &keys, true).map(drop),
        client.delete_where("t", None, &[]).map(drop),
        client.reset("t"),
        client.configure("t", Change { max_size: Some(10), ..Change::default() }),
    ];
    for ticket in late {
        let withdrawn = tokio::task::spawn_blocking(move || ticket.cancel()).await.unwrap();
        let Err(Error::NotCommitted { why, .. }) = withdrawn else { panic!("{withdrawn:?}") };
        assert!(why.starts_with("shard 1 (host-1:1): ") && why.contains("no space left"), "{why}");
    }
}

/// Two servers whose inserts are granted by the client.
async fn granted(limiter: Limiter) -> ([Arc<Host>; 2], Arc<Sharded>) {
    let hosts = [0, 1].map(|shard| Arc::new(Host::new(shard, table(true))));
    let client = joined(&hosts, alone(Some(limiter)));
    client.ready().await.unwrap();
    (hosts, client)
}

/// A restart without the items of before, and without the ration.
fn restart_empty(log: &Log, tables: &Tables) {
    tables.get("t").unwrap().reset().unwrap();
    log.restarts.fetch_add(1, SeqCst);
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_waits_at_a_restarted_server_goes_on_although_its_client_calls_nothing() {
    let (hosts, client) = granted(Limiter::min_size(1).unwrap()).await;
    for lost_first in [false, true] {
        assert_eq!(client.place(Some(1), &["t"], 2, None).await, Ok(1));
        if lost_first {
            hosts[1].log.is_down.store(true, SeqCst);
            client.failed(1, &Error::Unavailable("it is gone".to_owned()));
            tokio::time::sleep(SECOND).await;
        }
        restart_empty(&hosts[1].log, &hosts[1].tables);
        let inserted = hosts[1].insert(2);
        hosts[1].log.is_down.store(false, SeqCst);
        let keys = tokio::time::timeout(10 * SECOND, inserted).await.expect("it is granted again").unwrap();
        assert_eq!(keys.len(), 2, "lost first: {lost_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_is_larger_than_its_servers_part_of_the_limits_goes_on_after_a_restart() {
    let (hosts, client) = granted(ratio_limiter(1.0, 1, 30.0)).await;
    assert_eq!(client.place(Some(1), &["t"], 20, None).await, Ok(1));
    restart_empty(&hosts[1].log, &hosts[1].tables);
    // It arrives after the restart was noticed, and each server has its half of the 31 inserts.
    tokio::time::sleep(SECOND).await;
    let inserted = tokio::time::timeout(10 * SECOND, hosts[1].insert(20)).await;
    assert_eq!(inserted.expect("it is granted").unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_restarted_while_inserts_are_granted_to_it_has_its_ration_when_they_are_placed() {
    let (hosts, client) = granted(Limiter::min_size(1).unwrap()).await;
    // The client looks at its servers before the restart, and next after the end of the call.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The response of before the restart arrives after it.
    hosts[1].log.late_tallies.store(1, SeqCst);
    let placed = client.place(Some(1), &["t"], 2, None);
    let (log, tables) = (Arc::clone(&hosts[1].log), Arc::clone(&hosts[1].tables));
    tokio::spawn(async move {
        tokio::time::sleep(SECOND - Duration::from_millis(1)).await;
        restart_empty(&log, &tables);
    });
    assert_eq!(placed.await, Ok(1));
    assert!(hosts[1].tables.get("t").unwrap().can_insert(2));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_grants_nothing_more() {
    let (hosts, client) = granted(Limiter::min_size(1).unwrap()).await;
    drop(client);
    restart_empty(&hosts[1].log, &hosts[1].tables);
    tokio::time::sleep(10 * SECOND).await;
    assert!(!hosts[1].tables.get("t").unwrap().can_insert(1));
}
