//! Servers that fall silent, are lost, emptied or replaced at the worst moment, on a clock of the test's own.

use crate::support::{Host, allocate, alone, joined, ratio_limiter, table};
use reverie_core::batch::BatchOptions;
use reverie_core::replay::Replay;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest, Schedule};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Comparison, Condition, Field, Query, TableOptions, Updates};
use reverie_core::{Error, Result};
use reverie_net::sharded::Sharded;
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn hosts(is_rationed: bool) -> [Arc<Host>; 2] {
    [0, 1].map(|shard| Arc::new(Host::new(shard, table(is_rationed))))
}

/// Two servers with an item each, and a client of both.
async fn known() -> ([Arc<Host>; 2], Arc<Sharded>) {
    let hosts = hosts(false);
    hosts.iter().for_each(|host| _ = host.fill(&[1.0]));
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    (hosts, client)
}

fn request(num_samples: usize) -> SampleRequest {
    SampleRequest { num_samples, ..SampleRequest::default() }
}

async fn sample(client: &Sharded, count: usize, timeout: Option<Duration>) -> Result<SampleOutcome> {
    client.sample("t", request(count), &BatchOptions::default(), timeout).await
}

/// The servers of the draws, and how many draws there are.
fn drawn(sampled: &SampleOutcome) -> (Vec<u8>, usize) {
    let mut shards = HashSet::new();
    for batch in &sampled.batches {
        let DrawnBatch::Items(draws) = batch else { panic!("items") };
        shards.extend(draws.keys.iter().map(|key| key.shard()));
    }
    let mut shards: Vec<u8> = shards.into_iter().collect();
    shards.sort_unstable();
    (shards, sampled.batches.iter().map(DrawnBatch::len).sum())
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(60 * SECOND, future).await.expect("it ends")
}

fn ratio() -> Limiter {
    ratio_limiter(4.0, 1, 40.0)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_is_left_out_and_is_back_when_it_answers() {
    let (hosts, client) = known().await;
    hosts[1].log.is_silent.store(true, SeqCst);
    assert_eq!(drawn(&soon(sample(&client, 32, None)).await.unwrap()), (vec![0], 32));
    let since = Instant::now();
    assert_eq!(drawn(&soon(sample(&client, 32, None)).await.unwrap()), (vec![0], 32));
    assert!(since.elapsed() < SECOND);
    hosts[1].log.is_silent.store(false, SeqCst);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(drawn(&sample(&client, 32, None).await.unwrap()), (vec![0, 1], 32));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_works_for_longer_than_its_patience_is_not_lost() {
    let (hosts, client) = known().await;
    hosts[1].log.is_slow.store(true, SeqCst);
    hosts[1].log.delay.store(25_000, SeqCst);
    // Its description answers at once.
    hosts[1].log.is_prompt.store(true, SeqCst);
    assert_eq!(drawn(&soon(sample(&client, 32, None)).await.unwrap()), (vec![0, 1], 32));
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_timed_out_has_the_draws_of_the_others_and_later_ones_leave_a_silent_server_out() {
    let (hosts, client) = known().await;
    // Masses are known: the draw asks all servers at once.
    sample(&client, 32, None).await.unwrap();
    hosts[1].log.is_silent.store(true, SeqCst);
    let late = sample(&client, 32, Some(SECOND)).await.unwrap();
    assert!(matches!(&late.error, Some(Error::Deadline(_))));
    let (shards, count) = drawn(&late);
    assert!(shards == [0] && (1..32).contains(&count), "{shards:?} {count}");
    tokio::time::sleep(11 * SECOND).await;
    let next = sample(&client, 32, Some(SECOND)).await.unwrap();
    assert!(next.error.is_none());
    assert_eq!(drawn(&next), (vec![0], 32));
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_timed_out_at_a_silent_server_is_a_reason_to_pass_it_over() {
    let (hosts, client) = known().await;
    hosts[1].log.is_silent.store(true, SeqCst);
    client.failed(1, &Error::Deadline("late".to_owned()));
    tokio::time::sleep(11 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(client.place(None, &[], 0, None).await, Ok(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_leaves_out_a_server_that_is_lost_meanwhile() {
    let (hosts, client) = known().await;
    hosts[1].log.is_down.store(true, SeqCst);
    let found = client.query("t", &Query::default()).await.unwrap();
    assert_eq!(drawn_figures(&found), 1);
    assert_eq!(client.place(None, &[], 0, None).await, Ok(0));
}

fn drawn_figures(sampled: &SampleOutcome) -> usize {
    match &sampled.batches[..] {
        [DrawnBatch::Items(draws)] => draws.keys.len(),
        _ => panic!("one batch"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_server_that_is_lost_meanwhile_is_unknown() {
    let hosts = hosts(false);
    let keys = [hosts[0].fill(&[1.0]), hosts[1].fill(&[1.0])].concat();
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    hosts[1].log.is_down.store(true, SeqCst);
    let refused = client.get("t", &keys, &BatchOptions::default()).await;
    assert!(matches!(refused.err(), Some(Error::UnknownKey { key, .. }) if key.get() == keys[1]));
    assert_eq!(client.place(None, &[], 0, None).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_and_a_reset_that_miss_a_server_fail() {
    for is_known in [false, true] {
        let (hosts, client) = known().await;
        hosts[1].log.is_down.store(true, SeqCst);
        if is_known {
            sample(&client, 32, None).await.unwrap();
        }
        let names_it =
            |error: Option<Error>| matches!(error, Some(Error::Unavailable(text)) if text.contains("host-1:1"));
        assert!(names_it(client.checkpoint().await.err()), "known: {is_known}");
        let (hosts, client) = known().await;
        hosts[1].log.is_down.store(true, SeqCst);
        if is_known {
            sample(&client, 32, None).await.unwrap();
        }
        assert!(names_it(client.reset("t").await.err()), "known: {is_known}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_restarted_server_may_have_made_is_an_error_and_the_server_is_not_lost() {
    let (hosts, client) = known().await;
    hosts[1].log.is_undecided.store(true, SeqCst);
    assert!(matches!(client.reset("t").await, Err(Error::Undecided(_))));
    let condition = Condition::new(Field::TimesSampled, Comparison::AtLeast, 0.0).unwrap();
    assert!(matches!(client.delete_where("t", None, &[condition]).await, Err(Error::Undecided(_))));
    assert_eq!(client.place(Some(1), &[], 0, None).await, Ok(1));
}

/// Servers of which the second has nearly all mass, and loses its items while draws are on their way to it.
async fn emptied() -> ([Arc<Host>; 2], Arc<Sharded>) {
    let hosts = hosts(false);
    hosts[0].fill(&[1.0]);
    let gone = hosts[1].fill(&[1e9]);
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    *hosts[1].log.before_draws.lock().unwrap() =
        Some(Box::new(move |tables| _ = tables.get("t").unwrap().delete(&gone).unwrap()));
    (hosts, client)
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_meets_a_server_without_items_is_made_by_the_others_at_once() {
    let (_hosts, client) = emptied().await;
    let since = Instant::now();
    assert_eq!(drawn(&soon(sample(&client, 1, None)).await.unwrap()), (vec![0], 1));
    assert!(since.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn draws_of_items_one_by_one_wait_at_no_server_for_an_item() {
    let (_hosts, client) = emptied().await;
    let since = Instant::now();
    assert_eq!(drawn(&soon(client.sample_available("t", 1, None)).await.unwrap()), (vec![0], 1));
    assert!(since.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn draws_without_replacement_are_of_all_servers_also_if_one_lost_an_item_meanwhile() {
    let hosts = hosts(false);
    hosts[0].fill(&[1.0; 4]);
    let keys = hosts[1].fill(&[1e9; 4]);
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    *hosts[1].log.before_draws.lock().unwrap() =
        Some(Box::new(move |tables| _ = tables.get("t").unwrap().delete(&keys[..1]).unwrap()));
    let distinct = SampleRequest { without_replacement: true, ..request(4) };
    let since = Instant::now();
    let sampled = soon(client.sample("t", distinct, &BatchOptions::default(), None)).await.unwrap();
    assert_eq!(drawn(&sampled), (vec![0, 1], 4));
    let [DrawnBatch::Items(draws)] = &sampled.batches[..] else { panic!("one batch") };
    assert_eq!(draws.keys.iter().filter(|key| key.shard() == 1).count(), 3, "they have nearly all mass");
    assert!(since.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_wait() {
    // At an only server, which draws itself; over several; and for a server that answers nothing.
    let only = [Arc::new(Host::new(0, table(false)))];
    let client = joined(&only, alone(None));
    assert!(!client.can_sample("t", 1).await.unwrap());
    let hosts = hosts(false);
    let several = joined(&hosts, alone(None));
    assert!(!several.can_sample("t", 1).await.unwrap());
    let (silent, at_silent) = known().await;
    silent.iter().for_each(|host| host.log.is_silent.store(true, SeqCst));
    for client in [client, several, at_silent] {
        let waiting = tokio::spawn({
            let client = Arc::clone(&client);
            async move { sample(&client, 1, None).await.err() }
        });
        tokio::time::sleep(SECOND).await;
        client.close();
        assert!(matches!(soon(waiting).await.unwrap(), Some(Error::ClientClosed { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn draws_without_replacement_are_also_of_items_that_arrive_meanwhile() {
    let hosts = hosts(false);
    hosts[0].fill(&[1.0; 4]);
    hosts[1].fill(&[1e9]);
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    let grows = Arc::clone(&hosts[1]);
    *hosts[1].log.before_draws.lock().unwrap() = Some(Box::new(move |_| _ = grows.fill(&[1e9; 3])));
    let distinct = SampleRequest { without_replacement: true, ..request(4) };
    let sampled = soon(client.sample("t", distinct, &BatchOptions::default(), None)).await.unwrap();
    assert_eq!(drawn(&sampled), (vec![1], 4), "it has nearly all mass");
}

#[tokio::test]
async fn closing_ends_the_wait_for_a_batch_of_an_only_server() {
    let only = [Arc::new(Host::new(0, table(false)))];
    let client = joined(&only, alone(None));
    assert!(!client.can_sample("t", 1).await.unwrap());
    let mut batches = Arc::clone(&client).batches(schedule(), &BatchOptions::default(), allocate).unwrap();
    let mut next = move || batches.next(Duration::from_millis(1));
    assert!(next().is_none());
    client.close();
    assert!(matches!(next(), Some(Err(Error::ClientClosed { .. }))));
    assert!(matches!(next(), Some(Ok(None))), "the batches end after an error");
}

#[tokio::test]
async fn batches_ahead_that_meet_a_defect_end_with_an_error() {
    let (hosts, client) = known().await;
    for host in &hosts {
        *host.log.before_draws.lock().unwrap() = Some(Box::new(|_| panic!("a defect")));
    }
    let mut batches = Arc::clone(&client).batches(schedule(), &BatchOptions::default(), allocate).unwrap();
    let next = tokio::task::spawn_blocking(move || (0..60).find_map(|_| batches.next(SECOND)));
    assert!(matches!(next.await.unwrap(), Some(Err(Error::Unavailable(text))) if text.contains("defect")));
}

/// Batches of four, without an end.
fn schedule() -> Schedule {
    let parts = vec![("t".to_owned(), 4)];
    Schedule {
        parts,
        mixture: None,
        without_replacement: false,
        windows: None,
        max_samples: None,
        ahead: 2,
        budget: None,
    }
}

#[tokio::test]
async fn closing_batches_ahead_wakes_no_other_draw() {
    let hosts = hosts(false);
    let client = joined(&hosts, alone(None));
    assert!(!client.can_sample("t", 1).await.unwrap());
    let mut batches = Arc::clone(&client).batches(schedule(), &BatchOptions::default(), allocate).unwrap();
    let waiting = tokio::spawn({
        let client = Arc::clone(&client);
        async move { sample(&client, 1, None).await }
    });
    while hosts.iter().any(|host| host.log.looks.load(SeqCst) < 2) {
        tokio::task::yield_now().await;
    }
    let looks = hosts[0].log.looks.load(SeqCst);
    assert!(tokio::task::spawn_blocking(move || batches.close()).await.unwrap().is_empty());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hosts[0].log.looks.load(SeqCst), looks);
    hosts[0].fill(&[1.0]);
    assert_eq!(drawn(&waiting.await.unwrap().unwrap()), (vec![0], 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_found_lost_when_inserts_are_granted_is_not_chosen_for_them() {
    // Clients begin at any server.
    for _ in 0..20 {
        let hosts = hosts(true);
        let client = joined(&hosts, alone(Some(ratio())));
        client.ready().await.unwrap();
        hosts[1].log.is_down.store(true, SeqCst);
        assert_eq!(client.place(None, &["t"], 1, None).await, Ok(0));
        assert_eq!(client.place(Some(1), &["t"], 1, None).await, Ok(1), "the caller chose it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_with_other_tables_stays_out_until_they_fit() {
    let own = TableOptions { limiter: ratio(), ..table(false) };
    let named = TableOptions { name: "u".to_owned(), ..table(false) };
    for other in [own, named] {
        let (hosts, client) = known().await;
        hosts[1].log.is_down.store(true, SeqCst);
        sample(&client, 32, None).await.unwrap();
        *hosts[1].log.describes.lock().unwrap() = Some(TableOptions { shard: 1, ..other });
        hosts[1].log.is_down.store(false, SeqCst);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(drawn(&sample(&client, 32, None).await.unwrap()), (vec![0], 32));
        *hosts[1].log.describes.lock().unwrap() = None;
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(drawn(&sample(&client, 32, None).await.unwrap()), (vec![0, 1], 32));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_tally_of_a_server_that_is_back_replaces_no_newer_one() {
    let (hosts, client) = known().await;
    hosts[1].log.is_down.store(true, SeqCst);
    sample(&client, 32, None).await.unwrap();
    hosts[1].log.is_down.store(false, SeqCst);
    hosts[1].log.late_tallies.store(1, SeqCst);
    while hosts[1].log.late_tallies.load(SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    hosts[1].fill(&[1.0]);
    assert!(client.can_sample("t", 1).await.unwrap());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(client.info().await.unwrap().shards[1].tables[0].1.num_inserts, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_server_was_lost_does_not_bring_it_back() {
    let hosts = hosts(false);
    let keys = [hosts[0].fill(&[1.0]), hosts[1].fill(&[1.0])].concat();
    let client = joined(&hosts, alone(None));
    assert!(client.can_sample("t", 1).await.unwrap());
    hosts[1].log.is_slow.store(true, SeqCst);
    let asking = client.can_sample("t", 1);
    hosts[1].log.is_down.store(true, SeqCst);
    let updates = Updates { keys: &keys, priorities: &[2.0, 2.0], ..Updates::default() };
    assert_eq!(client.mutate("t", &updates, &[], true).await.unwrap().0.applied, 1);
    assert!(asking.await.unwrap());
    assert_eq!(client.info().await.unwrap().shards[1].tables[0].1.chance, 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_several_steps_ends_a_second_after_its_deadline() {
    let hosts = hosts(false);
    hosts[0].fill(&[1.0]);
    hosts.iter().for_each(|host| {
        host.log.is_slow.store(true, SeqCst);
        host.log.delay.store(600, SeqCst);
    });
    let client = joined(&hosts, alone(None));
    let since = Instant::now();
    let sampled = sample(&client, 1, Some(Duration::ZERO)).await;
    let error = sampled.map_or_else(Some, |sampled| sampled.error);
    assert!(matches!(error, Some(Error::Deadline(_))), "{error:?}");
    assert!(since.elapsed() <= SECOND + Duration::from_millis(10), "{:?}", since.elapsed());
}
