//! Draws and changes over several servers, on a clock of the test's own.

use crate::support::{Host, allocate, alone, joined, ratio_limiter, table};
use reverie_core::Error;
use reverie_core::batch::BatchOptions;
use reverie_core::replay::Replay;
use reverie_core::sample::{DrawnBatch, Draws, SampleOutcome, SampleRequest, Schedule};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Change, Updates};
use reverie_net::sharded;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn hosts(count: u8, is_rationed: bool) -> Vec<Arc<Host>> {
    (0..count).map(|shard| Arc::new(Host::new(shard, table(is_rationed)))).collect()
}

fn request(num_samples: usize) -> SampleRequest {
    SampleRequest { num_samples, ..SampleRequest::default() }
}

async fn sample(client: &sharded::Sharded, count: usize, timeout: Option<Duration>) -> SampleOutcome {
    client.sample("t", request(count), &BatchOptions::default(), timeout).await.unwrap()
}

fn draws(sampled: &SampleOutcome) -> &Draws {
    match &sampled.batches[..] {
        [DrawnBatch::Items(draws)] => draws,
        _ => panic!("one batch of items"),
    }
}

fn shards(draws: &Draws) -> HashSet<u8> {
    draws.keys.iter().map(|key| key.shard()).collect()
}

fn ratio() -> Limiter {
    ratio_limiter(4.0, 1, 40.0)
}

#[tokio::test(start_paused = true)]
async fn draws_have_the_probabilities_of_one_table_of_all_items() {
    let hosts = hosts(2, false);
    hosts[0].fill(&[1.0, 2.0]);
    hosts[1].fill(&[5.0]);
    let client = joined(&hosts, alone(None));
    let sampled = sample(&client, 64, None).await;
    let draws = draws(&sampled);
    assert_eq!((draws.len(), shards(draws).len()), (64, 2));
    for (priority, probability) in draws.priorities.iter().zip(&draws.probabilities) {
        assert!((probability - priority / 8.0).abs() < 1e-12, "{priority}: {probability}");
    }
    assert!(draws.table_sizes.iter().all(|size| *size == 3));
    assert!((draws.smallest_probability.unwrap() - 1.0 / 8.0).abs() < 1e-12);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_samples_alone_draws_by_the_masses_that_it_has_and_asks_no_more() {
    for (among, asks_first) in [((0, 1), false), ((0, 2), true)] {
        let hosts = hosts(2, true);
        let client = joined(&hosts, sharded::ShardedOptions { among, ..alone(Some(ratio())) });
        client.place(Some(0), &["t"], 4, None).await.unwrap();
        hosts[0].fill(&[1.0, 2.0]);
        assert_eq!(sample(&client, 2, None).await.batches[0].len(), 2);
        let asked = |host: &Host| host.log.draws.lock().unwrap().iter().map(|(count, _)| count).sum::<usize>();
        let before = (asked(&hosts[0]), hosts[0].log.tallies.load(SeqCst));
        assert_eq!(sample(&client, 2, None).await.batches[0].len(), 2);
        assert_eq!(asked(&hosts[0]) - before.0, 2);
        // One request more grants inserts; a client that is not alone also asks before it draws.
        let tallies = hosts[0].log.tallies.load(SeqCst) - before.1;
        assert_eq!(tallies > 1, asks_first, "{among:?}: {tallies}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_draw_that_waits_is_woken_by_an_insert_and_does_not_ask_meanwhile() {
    let hosts = hosts(2, false);
    let client = joined(&hosts, alone(None));
    let drawing = tokio::spawn({
        let client = Arc::clone(&client);
        async move { sample(&client, 4, None).await.batches[0].len() }
    });
    while hosts.iter().any(|host| host.log.looks.load(SeqCst) == 0) {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.why("t").await.unwrap().samples[0].wanted, 4);
    let before = tokio::time::Instant::now();
    hosts[1].fill(&[1.0]);
    assert_eq!(drawing.await.unwrap(), 4);
    assert!(before.elapsed() < SECOND, "it was woken, not by the look of every ten seconds");
    assert!(hosts[0].log.looks.load(SeqCst) <= 2);
    assert!(client.why("t").await.unwrap().samples.is_empty());
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_draws_so_far_come_with_the_reason() {
    let hosts = hosts(2, true);
    let client = joined(&hosts, alone(Some(ratio())));
    client.place(Some(0), &["t"], 4, None).await.unwrap();
    hosts[0].fill(&[1.0, 2.0]);
    // 2 * 4 inserts allow draws down to a difference of -36.
    let SampleOutcome { batches, error } = sample(&client, 60, Some(SECOND)).await;
    assert_eq!(batches[0].len(), 44);
    assert!(matches!(&error, Some(Error::Deadline(why)) if why.contains("over 2 of 2 shards")), "{error:?}");
    let SampleOutcome { batches, error } = sample(&client, 1, Some(Duration::ZERO)).await;
    assert!(batches.is_empty() && matches!(error, Some(Error::Deadline(_))));
}

#[tokio::test(start_paused = true)]
async fn servers_are_given_a_second_to_answer_a_draw_that_must_not_wait() {
    let hosts = hosts(2, false);
    hosts[0].fill(&[1.0]);
    let client = joined(&hosts, alone(None));
    assert_eq!(sample(&client, 2, Some(Duration::ZERO)).await.batches[0].len(), 2);
    assert_eq!(hosts[0].log.draws.lock().unwrap().pop(), Some((2, Some(SECOND))));
    sample(&client, 2, Some(20 * SECOND)).await;
    let (_, given) = hosts[0].log.draws.lock().unwrap().pop().unwrap();
    assert!(given.unwrap() > SECOND && given.unwrap() <= 20 * SECOND, "{given:?}");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_draw_returns_what_it_has() {
    let hosts = hosts(2, true);
    let client = joined(&hosts, alone(Some(ratio())));
    client.place(Some(0), &["t"], 4, None).await.unwrap();
    hosts[0].fill(&[1.0, 2.0]);
    let ticket = client.sample("t", request(60), &BatchOptions::default(), None);
    tokio::task::yield_now().await;
    let SampleOutcome { batches, error } = ticket.cancel().unwrap();
    assert_eq!((batches[0].len(), error), (44, None));
}

#[tokio::test(start_paused = true)]
async fn a_lost_server_is_left_out_until_it_answers_again() {
    let hosts = hosts(2, false);
    let keys = [hosts[0].fill(&[1.0, 1.0]), hosts[1].fill(&[1.0, 1.0])].concat();
    let client = joined(&hosts, alone(None));
    assert_eq!(shards(draws(&sample(&client, 32, None).await)).len(), 2);
    hosts[1].log.is_down.store(true, SeqCst);
    let sampled = sample(&client, 32, None).await;
    assert_eq!(shards(draws(&sampled)), HashSet::from([0]));
    assert!(draws(&sampled).probabilities.iter().all(|probability| (probability - 0.5).abs() < 1e-12));
    let updates = Updates { keys: &keys, priorities: &[3.0; 4], ..Updates::default() };
    let (updated, _) = client.mutate("t", &updates, &[], true).await.unwrap();
    assert_eq!((updated.applied, updated.stale), (2, 2), "keys of a lost server are stale");
    let present = |info: reverie_core::replay::Info| info.shards.iter().map(|shard| shard.present).collect::<Vec<_>>();
    assert_eq!(present(client.info().await.unwrap()), [true, false]);
    assert!(matches!(client.checkpoint().await, Err(Error::Unavailable(text)) if text.contains("host-1:1")));
    assert_eq!(client.place(None, &[], 0, None).await.unwrap(), 0);
    hosts[1].log.is_down.store(false, SeqCst);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(present(client.info().await.unwrap()), [true, true]);
    assert_eq!(shards(draws(&sample(&client, 64, None).await)).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_only_server_without_limits_over_all_draws_itself() {
    let hosts = hosts(1, false);
    hosts[0].fill(&[1.0]);
    let client = joined(&hosts, alone(None));
    // The table is checked at its first use.
    assert_eq!(sample(&client, 2, None).await.batches[0].len(), 2);
    assert_eq!(hosts[0].log.draws.lock().unwrap().len(), 1);
    assert_eq!(sample(&client, 2, None).await.batches[0].len(), 2);
    assert_eq!(hosts[0].log.draws.lock().unwrap().len(), 1, "the second draw is one of the server's own");
    hosts[0].log.is_down.store(true, SeqCst);
    assert!(matches!(sample(&client, 2, None).await.error, Some(Error::Unavailable(_))));
    assert!(matches!(client.place(None, &[], 0, None).await, Err(Error::Unavailable(_))), "it is known to be lost");
    client.close();
    let closed = client.sample("t", request(2), &BatchOptions::default(), None).await;
    assert!(matches!(closed, Err(Error::ClientClosed { .. })));
}

#[tokio::test(start_paused = true)]
async fn with_no_server_left_every_call_fails_and_names_them() {
    let hosts = hosts(2, false);
    hosts[0].fill(&[1.0]);
    let client = joined(&hosts, alone(None));
    sample(&client, 1, None).await;
    hosts.iter().for_each(|host| host.log.is_down.store(true, SeqCst));
    let lost = |error: Option<Error>| matches!(error, Some(Error::Unavailable(text)) if text.contains("host-0:1"));
    assert!(lost(client.sample("t", request(1), &BatchOptions::default(), None).await.err()));
    assert!(lost(client.info().await.err()) && lost(client.can_sample("t", 1).await.err()));
    assert!(lost(client.place(None, &[], 0, None).await.err()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_keeps_no_draw_of_the_others_back() {
    let hosts = hosts(2, false);
    hosts[0].fill(&[1.0]);
    hosts[1].fill(&[1.0]);
    let client = joined(&hosts, alone(None));
    sample(&client, 32, None).await;
    hosts[1].log.is_silent.store(true, SeqCst);
    let SampleOutcome { error, .. } = sample(&client, 32, Some(SECOND)).await;
    assert!(matches!(&error, Some(Error::Deadline(why)) if why.contains("the server is silent")), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_timed_out_is_a_reason_to_ask_whether_its_server_is_there() {
    let hosts = hosts(2, false);
    let client = joined(&hosts, alone(None));
    client.ready().await.unwrap();
    hosts[1].log.is_down.store(true, SeqCst);
    client.failed(1, &Error::Deadline("late".to_owned()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    for _ in 0..3 {
        assert_eq!(client.place(None, &[], 0, None).await.unwrap(), 0);
    }
    assert!(matches!(client.place(Some(2), &[], 0, None).await, Err(Error::InvalidArgument(_))));
}

#[tokio::test(start_paused = true)]
async fn two_servers_of_one_number_and_limits_of_a_servers_own_are_refused() {
    let same = [Arc::new(Host::new(7, table(false))), Arc::new(Host::new(7, table(false)))];
    let refused = joined(&same, alone(None)).ready().await;
    assert!(matches!(refused, Err(Error::InvalidArgument(text)) if text.contains("both shard 7")));
    let own = reverie_core::table::TableOptions { limiter: ratio(), ..table(false) };
    let client = joined(&[Arc::new(Host::new(0, own))], alone(None));
    let refused = client.can_sample("t", 1).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(text)) if text.contains("rate limiter of its own")));
    let client = joined(&hosts(2, false), alone(Some(ratio())));
    assert!(matches!(client.ready().await, Err(Error::InvalidArgument(text)) if text.contains("limits nothing")));
}

#[tokio::test(start_paused = true)]
async fn draws_without_replacement_are_all_of_the_items_once() {
    let hosts = hosts(2, false);
    let mut keys = [hosts[0].fill(&[1.0, 2.0, 3.0]), hosts[1].fill(&[4.0, 5.0])].concat();
    let client = joined(&hosts, alone(None));
    let distinct = |num_samples| SampleRequest { without_replacement: true, ..request(num_samples) };
    let sampled = client.sample("t", distinct(5), &BatchOptions::default(), None).await.unwrap();
    let mut drawn: Vec<i64> = draws(&sampled).keys.iter().map(|key| key.get()).collect();
    drawn.sort_unstable();
    keys.sort_unstable();
    assert_eq!(drawn, keys);
    let few = client.sample("t", distinct(6), &BatchOptions::default(), Some(SECOND)).await.unwrap();
    assert!(few.batches.is_empty());
    assert!(matches!(few.error, Some(Error::Deadline(why)) if why.contains("There are 5 items")));
}

#[tokio::test(start_paused = true)]
async fn items_are_read_in_the_order_of_their_keys() {
    let hosts = hosts(2, false);
    let keys = [hosts[0].fill(&[1.0, 2.0]), hosts[1].fill(&[3.0, 4.0])].concat();
    let client = joined(&hosts, alone(None));
    let mixed: Vec<i64> = [3, 0, 2, 1].map(|index| keys[index]).to_vec();
    let sampled = client.get("t", &mixed, &BatchOptions::default()).await.unwrap();
    let [DrawnBatch::Gathered(batch)] = &sampled.batches[..] else { panic!("one batch of arrays") };
    assert_eq!(batch.draws.keys.iter().map(|key| key.get()).collect::<Vec<_>>(), mixed);
    assert_eq!(batch.draws.priorities, [4.0, 1.0, 3.0, 2.0]);
    let gone = client.get("t", &[keys[0], 60 << 57], &BatchOptions::default()).await;
    assert!(matches!(gone, Err(Error::UnknownKey { key, .. }) if key.get() == 60 << 57));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_priority_changes_no_server() {
    let hosts = hosts(2, false);
    let keys = [hosts[0].fill(&[1.0]), hosts[1].fill(&[1.0])].concat();
    let client = joined(&hosts, alone(None));
    for invalid in [-1.0, f64::NAN, f64::INFINITY] {
        let updates = Updates { keys: &keys, priorities: &[5.0, invalid], ..Updates::default() };
        assert!(matches!(client.mutate("t", &updates, &[], true).await, Err(Error::InvalidArgument(_))));
    }
    let updates = Updates { keys: &keys, priorities: &[5.0], ..Updates::default() };
    assert!(matches!(client.mutate("t", &updates, &[], true).await, Err(Error::InvalidArgument(_))));
    assert_eq!(draws(&sample(&client, 8, None).await).priorities, [1.0; 8]);
}

#[tokio::test(start_paused = true)]
async fn a_first_update_that_no_caller_waits_for_keeps_no_other_call_waiting() {
    let hosts = hosts(2, false);
    let keys = [hosts[0].fill(&[1.0]), hosts[1].fill(&[1.0])].concat();
    let client = joined(&hosts, alone(None));
    let updates = Updates { keys: &keys, priorities: &[5.0, 5.0], ..Updates::default() };
    hosts[1].log.is_slow.store(true, SeqCst);
    let unawaited = client.mutate("t", &updates, &[], false);
    let drawn = tokio::time::timeout(60 * SECOND, sample(&client, 4, None)).await.expect("it waits for no other call");
    assert_eq!(drawn.batches[0].len(), 4);
    assert_eq!(unawaited.await.unwrap().0.applied, 2);
}

#[tokio::test(start_paused = true)]
async fn limits_change_over_all_servers() {
    let hosts = hosts(2, true);
    let client = joined(&hosts, alone(Some(ratio())));
    let change = |max_size| Change { max_size: Some(max_size), ..Change::default() };
    client.configure("t", change(9)).await.unwrap();
    let sizes = hosts.iter().map(|host| host.tables.get("t").unwrap().info().options.max_size).collect::<Vec<_>>();
    assert_eq!(sizes, [5, 4]);
    let limiter = Some(Limiter::min_size(10).unwrap());
    let refused = client.configure("t", Change { limiter, ..Change::default() }).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(text)) if text.contains("max_size 9 is below")));
    assert!(!client.can_insert("t", 1 << 40).await.unwrap());
    let limiter = Some(Limiter::min_size(2).unwrap());
    client.configure("t", Change { limiter, ..Change::default() }).await.unwrap();
    assert!(client.can_insert("t", 1 << 40).await.unwrap());
    assert!(matches!(client.configure("t", change(1)).await, Err(Error::InvalidArgument(_))));
}

#[tokio::test]
async fn batches_are_made_ahead_and_none_is_lost_at_the_end() {
    let hosts = hosts(2, false);
    hosts[0].fill(&[1.0]);
    hosts[1].fill(&[1.0]);
    let client = joined(&hosts, alone(None));
    client.ready().await.unwrap();
    let schedule = |max_samples, ahead| Schedule {
        parts: vec![("t".to_owned(), 4)],
        mixture: None,
        without_replacement: false,
        windows: None,
        max_samples,
        ahead,
        budget: None,
    };
    let read = |max_samples, ahead| {
        let (client, schedule) = (Arc::clone(&client), schedule(max_samples, ahead));
        move || {
            let mut batches = client.batches(schedule, &BatchOptions::default(), allocate).unwrap();
            let mut lens = Vec::new();
            while lens.len() < 3 {
                match batches.next(SECOND) {
                    Some(Ok(Some(drawn))) => lens.push(drawn.len()),
                    Some(Ok(None)) => break,
                    Some(Err(error)) => panic!("{error}"),
                    None => {}
                }
            }
            (lens, batches.close().len())
        }
    };
    assert_eq!(tokio::task::spawn_blocking(read(Some(6), 2)).await.unwrap(), (vec![4, 2], 0));
    let (lens, left) = tokio::task::spawn_blocking(read(None, 2)).await.unwrap();
    assert!(lens == [4, 4, 4] && left <= 3, "{lens:?}, {left} left");
    client.close();
    assert!(matches!(client.can_sample("t", 1).await, Err(Error::ClientClosed { .. })));
}
