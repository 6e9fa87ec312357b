//! The programs that run on the hosts.

use super::rows::{Rows, batch_values};
use super::{WRITERS, World, below, open, random, server_options, unavailable};
use rand_xoshiro::Xoshiro256PlusPlus;
use reverie_core::Error;
use reverie_core::append::Sink;
use reverie_core::batch::Ragged;
use reverie_core::replay::Replay;
use reverie_core::sample::{DrawnBatch, LeaseState, SampleOutcome};
use reverie_core::table::{Keys, Ticket};
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::listen;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

type Outcome = turmoil::Result;

/// Inserts of a writer in all.
const INSERTS: u64 = 100;
/// The time after its deadline in which an answer may come: the promise, and a tick of the simulation for each end.
const LATEST: Duration = Duration::from_millis(320);

/// A tick for each end.
const TICKS: Duration = Duration::from_millis(40);

/// Like `LATEST`, for a client that measured a longer round trip, e.g. when it connected while the network held
/// messages.
fn latest(client: &Remote) -> Duration {
    LATEST.max(client.grace() + TICKS)
}

/// Inserts that are not confirmed: their tables and values.
type Waiting = VecDeque<(&'static str, Range<i64>, Ticket<Keys>)>;

pub fn writer_name(writer: usize) -> String {
    format!("writer{writer}")
}

pub async fn serve(world: Arc<World>) -> Outcome {
    let tables = world.start_server();
    // One half of the simulations saves now and then, in the midst of everything.
    if world.seed.is_multiple_of(2) {
        let (world, tables, mut random) = (Arc::clone(&world), Arc::clone(&tables), random(world.seed, 40));
        tokio::spawn(async move {
            let store = world.store();
            loop {
                sleep(Duration::from_millis(below(&mut random, 1500))).await;
                world.save(&store, &tables);
            }
        });
    }
    let (opener, shut) = (Arc::clone(&world), Arc::clone(&tables));
    tokio::spawn(async move {
        while !opener.are_writers_done() {
            sleep(Duration::from_millis(100)).await;
        }
        open(&shut);
    });
    let listener = turmoil::net::TcpListener::bind("0.0.0.0:9000").await.map_err(|error| unavailable(&error))?;
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, peer)| (stream, peer.to_string()));
        Some((accepted, listener))
    });
    listen::serve(tables, &server_options(), incoming).await.map_err(|error| error.to_string())?;
    Ok(())
}

/// Connects however long it takes.
async fn connected(client: &Arc<Remote>) {
    loop {
        match client.describe().await {
            Ok(_) => return,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes to all tables, with some in flight; goes on where a life of its own before was crashed.
pub async fn write(world: Arc<World>, me: usize) -> Outcome {
    let client = world.client(Duration::from_secs(5));
    let mut random = random(world.seed, 10 + me as u64 + world.next_value.load(Ordering::Relaxed));
    connected(&client).await;
    let mut rows = Rows::new(&client);
    let mut waiting = Waiting::new();
    // The inserts that the shut table does not take exceed the credit.
    let mut shut = Waiting::new();
    for _ in 0..INSERTS {
        let count = 1 + below(&mut random, 8).saturating_sub(5);
        let first = world.next_value.fetch_add(count, Ordering::Relaxed) as i64;
        let values = first..first + count as i64;
        let table = ["shut", "shut", "queue", "queue"].get(below(&mut random, 8) as usize).unwrap_or(&"replay");
        let ticket = client.insert(table, rows.inserts(values.clone())).unwrap();
        if *table == "shut" {
            shut.push_back((*table, values, ticket));
            if below(&mut random, 12) == 0 {
                take_back(&world, &client, &mut random, &mut shut).await;
            }
            continue;
        }
        waiting.push_back((*table, values, ticket));
        while waiting.len() > below(&mut random, 60) as usize {
            if below(&mut random, 12) == 0 {
                take_back(&world, &client, &mut random, &mut waiting).await;
            } else {
                confirm(&world, &mut waiting).await;
            }
        }
        if below(&mut random, 3) == 0 {
            sleep(Duration::from_millis(below(&mut random, 200))).await;
        }
    }
    while !waiting.is_empty() {
        confirm(&world, &mut waiting).await;
    }
    world.writer_done(me);
    while !shut.is_empty() {
        confirm(&world, &mut shut).await;
    }
    world.reconnects.fetch_add(client.link().reconnects, Ordering::Relaxed);
    world.writers_done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

async fn confirm(world: &World, waiting: &mut Waiting) {
    let (table, values, ticket) = waiting.pop_front().expect("something waits");
    let keys = ticket.await.unwrap_or_else(|error| panic!("seed {}: the insert of {values:?}: {error}", world.seed));
    world.confirm(table, values, &keys);
}

/// Takes an insert back, finds out what became of it, and leaves what is not in out for good: nothing may come later.
async fn take_back(world: &World, client: &Arc<Remote>, random: &mut Xoshiro256PlusPlus, waiting: &mut Waiting) {
    let at = below(random, waiting.len() as u64) as usize;
    let (table, values, mut ticket) = waiting.remove(at).expect("something waits");
    world.withdrawn.fetch_add(1, Ordering::Relaxed);
    // The caller's own deadline.
    let patience = Duration::from_millis(below(random, 500));
    let outcome = match tokio::time::timeout(patience, &mut ticket).await {
        Ok(outcome) => outcome,
        Err(_) => {
            ticket.withdraw();
            let start = Instant::now();
            let outcome = ticket.await;
            assert!(start.elapsed() <= latest(client), "seed {}: a withdrawal took {:?}", world.seed, start.elapsed());
            outcome
        }
    };
    let keys = match outcome {
        Err(Error::UnknownOutcome { number }) => {
            world.unknown.fetch_add(1, Ordering::Relaxed);
            client.insert_outcome(number).await
        }
        known => known,
    };
    let keys = keys.unwrap_or_else(|error| panic!("seed {}: the insert of {values:?}: {error}", world.seed));
    let middle = values.start + keys.len() as i64;
    world.confirm(table, values.start..middle, &keys);
    world.is_absent(middle..values.end);
}

pub async fn read(world: Arc<World>, kind: usize) -> Outcome {
    match kind {
        0 => sample(&world).await,
        _ => consume(&world).await,
    }
    world.readers_done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn draws(table: &str, n: usize) -> SampleRequest {
    SampleRequest {
        parts: vec![(table.to_owned(), n)],
        columns: None,
        ragged: Ragged::Refuse,
        without_replacement: false,
        windows: None,
        at_once: false,
        only_now: false,
        leases: false,
    }
}

/// Samples with deadlines, which must be kept whatever happens.
async fn sample(world: &World) {
    let client = world.client(Duration::from_secs(3));
    let mut random = random(world.seed, 20);
    while world.writers_done.load(Ordering::SeqCst) < WRITERS {
        let timeout = Duration::from_millis(below(&mut random, 2000));
        let (start, n) = (Instant::now(), 1 + below(&mut random, 16) as usize);
        let sampled = client.draw(draws("replay", n), Some(timeout)).await.unwrap();
        let took = start.elapsed();
        assert!(took <= timeout + latest(&client), "seed {}: {took:?} for a timeout of {timeout:?}", world.seed);
        let drawn: usize = sampled.batches.iter().map(|batch| batch_values(batch).len()).sum();
        match sampled.error {
            None => assert_eq!(drawn, n),
            Some(Error::Deadline(_) | Error::Unavailable(_)) => {
                world.late.fetch_add(1, Ordering::Relaxed);
            }
            Some(error) => panic!("seed {}: {error}", world.seed),
        }
        sleep(Duration::from_millis(below(&mut random, 50))).await;
    }
    world.reconnects.fetch_add(client.link().reconnects, Ordering::Relaxed);
}

/// Takes all that the queue is given, with deadlines and without, and gives requests up at any moment: nothing may be
/// lost, and nothing come twice.
async fn consume(world: &World) {
    // In a third of the simulations it is notified of outages during them.
    let patience = if world.seed.is_multiple_of(3) { 3 } else { 100_000 };
    let client = world.client(Duration::from_secs(patience));
    let mut random = random(world.seed, 30);
    let (consumer, mut idle) = (world.begin_consumer(), 0);
    loop {
        let at_once = below(&mut random, 2) == 0;
        let n = if at_once { 3 } else { 1 + below(&mut random, 4) as usize };
        // Requests for several may wait for the last values for ever: these have a deadline.
        let timeout = (n > 1 && !at_once).then(|| Duration::from_millis(below(&mut random, 300)));
        let leases = below(&mut random, 2) == 0;
        let mut ticket = client.draw(SampleRequest { at_once, leases, ..draws("queue", n) }, timeout);
        match below(&mut random, 6) {
            // Gives it up at any moment, and does not look back.
            0 => {
                wait_for(&ticket, below(&mut random, 200)).await;
                if !ticket.is_done() {
                    world.abandoned.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            // Takes it back, and takes what was drawn by then.
            1 => {
                wait_for(&ticket, below(&mut random, 200)).await;
                world.abandoned.fetch_add(u64::from(!ticket.is_done()), Ordering::Relaxed);
                ticket.withdraw();
            }
            _ => {}
        }
        let mut sampled = loop {
            if let Ok(sampled) = tokio::time::timeout(Duration::from_secs(1), &mut ticket).await {
                break sampled.unwrap();
            }
            // The items of a crashed server are lost: its queue is empty, and stays so.
            idle = if world.is_lost_to_a_crash() { idle + 1 } else { 0 };
            if world.is_consumed() || idle > PATIENCE {
                world.reconnects.fetch_add(client.link().reconnects, Ordering::Relaxed);
                return;
            }
        };
        match sampled.error {
            None | Some(Error::Deadline(_) | Error::Unavailable(_)) => {}
            Some(error) => panic!("seed {}: {error}", world.seed),
        }
        let mut none = true;
        if leases && !hold(&mut sampled, [below(&mut random, 300), below(&mut random, 300)]).await {
            world.abandoned.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        for value in sampled.batches.iter().flat_map(batch_values) {
            world.consume(consumer, value);
            none = false;
        }
        // The items of a crashed server are lost: its queue is empty, and stays so.
        let done = world.is_consumed() || (none && idle > 10 * PATIENCE);
        if done {
            world.reconnects.fetch_add(client.link().reconnects, Ordering::Relaxed);
            return;
        }
        idle = if none && world.is_lost_to_a_crash() { idle + 1 } else { 0 };
    }
}

/// Leaves leased draws where they are for a time, makes something of them for a time, and takes them then; false if
/// they are the server's again.
async fn hold(sampled: &mut SampleOutcome, [waits, makes]: [u64; 2]) -> bool {
    sleep(Duration::from_millis(waits)).await;
    loop {
        match sampled.batches.iter().map(DrawnBatch::lease_state).max() {
            Some(LeaseState::Unknown) => sleep(Duration::from_millis(10)).await,
            Some(LeaseState::Ended) => return false,
            Some(LeaseState::Held) | None => break,
        }
    }
    sleep(Duration::from_millis(makes)).await;
    sampled.batches.iter_mut().all(|batch| batch.take_lease().try_acknowledge())
}

/// Waits for the outcome, and leaves it where it is: one that was taken out and dropped would be lost by the test
/// itself. So would be one that is not leased and lies there for longer than its acknowledgement takes, where the
/// consumer is killed.
async fn wait_for(ticket: &Ticket<SampleOutcome>, millis: u64) {
    let until = Instant::now() + Duration::from_millis(millis);
    while !ticket.is_done() && Instant::now() < until {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Seconds in which the writers are through and the queue is empty.
const PATIENCE: u32 = 5;
