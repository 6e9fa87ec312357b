//! Draws that clients hold when their session or the server ends, and those that they held before its start.

use super::super::read_options::ReadOptions;
use super::super::samples::DrawDelivery;
use super::*;
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::table::{Change, LeasedSlot, Lessee, SharedTable};

const CLIENT: u8 = 3;
const REQUEST: u64 = 7;

/// A server whose table deletes sampled items and has `items` of them.
fn consuming(items: usize) -> (Arc<ServerState>, Arc<SharedTable>) {
    let shared = shared(10, Limits::default(), None);
    let table = Arc::clone(shared.tables.get("a").unwrap());
    let once = Change { max_times_sampled: Some(1), ..Change::default() };
    table.configure(once).unwrap();
    // One is there.
    for _ in 1..items {
        assert!(table.insert(row(&shared.tables, 10)).unwrap().is_done());
    }
    (shared, table)
}

/// A server whose table deletes sampled items and has two; the first was drawn by the client's request before the start.
fn restarted() -> (Arc<ServerState>, Arc<SharedTable>) {
    let (shared, table) = consuming(2);
    let first = table.cut().iter().map(|(slot, of, _)| LeasedSlot { slot, generation: of.generation }).next().unwrap();
    let lessee = Lessee { sender: [CLIENT; 16], request: REQUEST };
    shared.tables.hold_lease("a", lessee, &[first]).unwrap();
    assert_eq!(left(&table), (1, 1, 1));
    (shared, table)
}

/// Items that can be drawn, draws that are not acknowledged, and draws that count.
fn left(table: &SharedTable) -> (u64, u64, u64) {
    let info = table.info();
    (info.size, info.leased, info.counters.samples)
}

fn report(connection: &ScriptedConnection, received: proto::Received) {
    let mut script = connection.script();
    script.messages.push_back(ClientMessage { received: Some(received), ..Default::default() });
    script.waker.take().into_iter().for_each(Waker::wake);
}

#[tokio::test]
async fn the_error_that_ends_a_request_follows_the_batches_that_it_sent() {
    let (shared, _) = consuming(3);
    let connection = ScriptedConnection::default();
    connect(&shared, &connection).await;
    connection.read();
    let parts = vec![proto::SamplePart { table: "a".to_owned(), num_samples: 5 }];
    let body = Some(request::Body::Sample(proto::Sample { parts, ..Default::default() }));
    connection.send(ClientBody::Request(proto::Request { id: 1, timeout: Some(0.0), body }));
    settle().await;
    assert!(matches!(connection.read().unwrap().body, Some(Body::Batch(batch)) if batch.num_draws == 3));
    let last = std::iter::from_fn(|| connection.read()).last().unwrap();
    assert!(matches!(last.body, Some(Body::Reply(reply)) if reply.id == 1), "the deadline");
}

#[tokio::test]
async fn the_answer_to_a_return_follows_the_batch_that_is_returned() {
    let (shared, table) = consuming(1);
    let connection = ScriptedConnection::default();
    connect(&shared, &connection).await;
    connection.read();
    connection.ask(1, 1);
    settle().await;
    report(&connection, proto::Received { returned: crate::convert::numbers::encode(&[1_u64]), ..Default::default() });
    settle().await;
    assert!(matches!(connection.read().unwrap().body, Some(Body::Batch(batch)) if batch.id == 1));
    let last = std::iter::from_fn(|| connection.read()).last().unwrap();
    assert!(matches!(last.body, Some(Body::Reply(reply)) if reply.id == 1));
    assert_eq!(left(&table), (1, 0, 0));
}

#[tokio::test]
async fn a_client_that_reconnects_acknowledges_the_draws_that_it_received_before_the_restart() {
    let (shared, table) = restarted();
    let (other, _) = connect_as(&shared, 9).await;
    report(&other, proto::Received { before: 100, ..Default::default() });
    settle().await;
    assert_eq!(left(&table), (1, 1, 1), "another client acknowledges nothing of it");
    let (connection, _) = connect_as(&shared, CLIENT).await;
    report(&connection, proto::Received { before: REQUEST + 1, ..Default::default() });
    settle().await;
    assert_eq!(left(&table), (1, 0, 1));
}

#[tokio::test]
async fn a_request_that_is_sent_again_after_a_restart_gets_the_draws_that_it_had() {
    let (shared, table) = restarted();
    let (connection, _) = connect_as(&shared, CLIENT).await;
    connection.ask(REQUEST, 1);
    settle().await;
    assert!(matches!(connection.script().queued.front().unwrap().body, Some(Body::Batch(_))));
    assert_eq!(left(&table), (1, 1, 1), "the same item is leased again, and the other is still there");
    report(&connection, proto::Received { below: REQUEST + 1, ..Default::default() });
    settle().await;
    assert_eq!(left(&table), (1, 0, 1));
}

#[tokio::test]
async fn a_request_that_is_returned_after_a_restart_leaves_its_draws_to_others() {
    let (shared, table) = restarted();
    let (connection, _) = connect_as(&shared, CLIENT).await;
    let returned = crate::convert::numbers::encode(&[REQUEST]);
    report(&connection, proto::Received { returned, ..Default::default() });
    settle().await;
    assert_eq!(left(&table), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn draws_whose_client_does_not_reconnect_in_time_return_to_the_table() {
    let (shared, table) = restarted();
    let linger = Limits::default().linger;
    let ending = tokio::spawn(Arc::clone(&shared).end_held_leases());
    tokio::time::sleep(linger - Duration::from_secs(1)).await;
    assert_eq!(left(&table), (1, 1, 1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    ending.await.unwrap();
    assert_eq!(left(&table), (2, 0, 0));
}

#[tokio::test]
async fn items_that_a_session_that_panics_has_drawn_return_to_the_table() {
    let (shared, table) = consuming(3);
    let (connection, _) = connect_as(&shared, CLIENT).await;
    // One is sent and not acknowledged, and two wait for a fourth.
    connection.ask(1, 1);
    connection.ask(2, 3);
    settle().await;
    assert_eq!((left(&table), table.info().pending_samples), ((0, 3, 3), 1));
    connection.script().panics = true;
    connection.ask(3, 1);
    settle().await;
    assert_eq!((left(&table), table.info().pending_samples), ((3, 0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_acknowledgement_of_draws_that_were_sent_so_that_no_last_checkpoint_has_them() {
    for acknowledges in [true, false] {
        let (shared, table) = consuming(2);
        let (connection, _) = connect_as(&shared, CLIENT).await;
        connection.ask(REQUEST, 1);
        settle().await;
        assert_eq!(left(&table), (1, 1, 1));
        let stopping = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.stop(Duration::from_secs(7)).await }
        });
        settle().await;
        assert!(!stopping.is_finished(), "the client may have them");
        if acknowledges {
            report(&connection, proto::Received { below: REQUEST + 1, ..Default::default() });
            settle().await;
        }
        assert_eq!(stopping.is_finished(), acknowledges);
        let start = tokio::time::Instant::now();
        stopping.await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(2), "not for the whole grace time: {:?}", start.elapsed());
        assert_eq!(table.cut().iter().count(), if acknowledges { 1 } else { 2 });
    }
}

#[tokio::test]
async fn draws_for_which_memory_ran_out_return_to_their_places_and_others_of_the_request_stay() {
    let (shared, table) = consuming(5);
    let lessee = Lessee { sender: [CLIENT; 16], request: REQUEST };
    let request = SampleRequest { num_samples: 4, lessee: Some(lessee), ..SampleRequest::default() };
    let mut draws = table.sample(request).unwrap().await.unwrap();
    let keys = draws.keys.clone();
    let mut answer = DrawDelivery::whole(REQUEST, ReadOptions::default(), Draws::default());
    answer.lease = std::mem::take(&mut draws.lease);
    let behind = draws.split_off(3);
    answer.groups = VecDeque::from([draws, behind]);
    assert_eq!(left(&table), (1, 4, 4));
    answer.split_first(Error::OutOfMemory { needed: 1 });
    assert_eq!((answer.groups.len(), answer.is_leased()), (1, true), "the last draw is still sent");
    assert_eq!(left(&table), (4, 1, 1));
    answer.lease.acknowledge();
    let again = table.sample(SampleRequest { num_samples: 4, ..SampleRequest::default() }).unwrap().await.unwrap();
    assert_eq!(again.keys[..3], keys[..3], "in the order that they had");
    drop(shared);
}

/// An answer whose lease has parts, as that of several tables has: four draws, in groups of `first` and of the rest.
async fn of_several_tables(table: &Arc<SharedTable>, first: usize) -> DrawDelivery {
    let lessee = Lessee { sender: [CLIENT; 16], request: REQUEST };
    let mut draws = Draws::default();
    for _ in 0..2 {
        let request = SampleRequest { num_samples: 2, lessee: Some(lessee), ..SampleRequest::default() };
        draws.append(table.sample(request).unwrap().await.unwrap());
    }
    let mut answer = DrawDelivery::whole(REQUEST, ReadOptions::default(), Draws::default());
    answer.lease = std::mem::take(&mut draws.lease);
    let behind = draws.split_off(first);
    answer.groups = VecDeque::from([draws, behind]);
    answer
}

#[tokio::test]
async fn draws_of_several_tables_for_which_memory_ran_out_return_and_the_others_are_sent() {
    let (shared, table) = consuming(5);
    let mut answer = of_several_tables(&table, 3).await;
    assert_eq!(left(&table), (1, 4, 4));
    answer.split_first(Error::OutOfMemory { needed: 1 });
    assert_eq!((answer.groups.len(), answer.is_leased()), (1, true));
    assert_eq!(left(&table), (4, 1, 1));
    drop(shared);
}

#[tokio::test]
async fn a_draw_of_several_tables_for_which_there_is_no_memory_returns_also_after_others_were_sent() {
    let (shared, table) = consuming(5);
    let mut answer = of_several_tables(&table, 3).await;
    let last = answer.groups[1].keys.clone();
    answer.first_was_sent();
    answer.split_first(Error::OutOfMemory { needed: 1 });
    assert_eq!((answer.groups.len(), answer.is_leased()), (0, true));
    assert!(matches!(answer.error, Some(Error::OutOfMemory { .. })), "the request ends with it");
    assert_eq!(left(&table), (2, 3, 3), "the client acknowledges what it receives");
    let again = table.sample(SampleRequest { num_samples: 2, ..SampleRequest::default() }).unwrap().await.unwrap();
    assert_eq!(again.keys[..1], last, "at the place that it had");
    drop(shared);
}

#[tokio::test]
async fn a_draw_that_cannot_be_sent_alone_either_returns_unless_its_item_is_damaged() {
    let refused = || Error::InvalidArgument("columns: there is no 'y'".to_owned());
    let damaged = || Error::Damaged("a chunk".to_owned());
    for (error, after) in [(refused(), (5, 0, 0)), (damaged(), (2, 3, 3))] {
        let (shared, table) = consuming(5);
        let mut answer = of_several_tables(&table, 3).await;
        answer.split_first(refused());
        assert_eq!(answer.groups.iter().map(Draws::len).collect::<Vec<_>>(), [1, 1, 1, 1]);
        assert_eq!(left(&table), (1, 4, 4));
        // The last three cannot be sent for another reason than the first.
        answer.split_first(refused());
        for _ in 1..4 {
            answer.split_first(error.clone());
        }
        assert!(answer.groups.is_empty());
        assert_eq!(left(&table), after);
        drop(shared);
    }
}
