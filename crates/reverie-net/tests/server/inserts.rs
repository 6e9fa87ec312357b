use crate::support::*;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, reply, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_of_a_message_are_confirmed_as_one_with_their_keys() {
    let host = Host::new(vec![table("a"), table("b")]);
    let mut session = host.session(1).await;
    let first = session.insert(1, &[1.0, 2.0, 3.0]);
    let keys = session.inserted(first, 3).await;
    let get = proto::Get { table: "b".to_owned(), keys: convert::numbers::encode(&[keys[2], keys[0]]), reading: None };
    let id = session.ask(request::Body::Get(get), None);
    assert_eq!(session.whole(id).await.values(), [3.0, 1.0]);
    assert_eq!((host.size("a"), host.size("b")), (0, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_waits_for_its_table_and_no_other_request_waits_for_it() {
    let host = Host::new(vec![queue("a", 2), table("b")]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0, 3.0]);
    session.inserted(first, 2).await;
    let other = session.insert(1, &[4.0]);
    session.inserted(other, 1).await;
    let id = session.ask(sample("a", 1), None);
    // The draw makes room once it is acknowledged.
    let (mut keys, mut values) = (None, None);
    for _ in 0..2 {
        match session.next().await {
            Some(proto::server_message::Body::Inserted(inserted)) => keys = Some((inserted.first_id, inserted.keys)),
            Some(proto::server_message::Body::Batch(batch)) => {
                assert_eq!(batch.id, id);
                let Some(proto::server_message::Body::Part(part)) = session.next().await else { panic!("no part") };
                values = Some(f64::from_le_bytes(part.data[64..72].try_into().unwrap()));
                session.received(0, &[id]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((keys.map(|(first, keys)| (first, keys.len())), values), (Some((first + 2, 1)), Some(1.0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_is_withdrawn_reports_which_items_are_in() {
    let host = Host::new(vec![queue("a", 2)]);
    let mut session = host.session(1).await;
    let id = session.take_id(1);
    // One request of three items.
    let mut insert = insert(id, 0, &[1.0, 2.0, 3.0], 1);
    insert.runs = vec![proto::InsertRun { table: 0, requests: 1, items: 3, skipped: 0 }];
    session.send.send(message(ClientBody::Insert(insert))).unwrap();
    session.send.send(message(ClientBody::Cancel(proto::Cancel { id, insert: true }))).unwrap();
    let Kind::Deadline(deadline) = session.refusal(id).await else { panic!("not a deadline") };
    assert_eq!(deadline.keys.len(), 2);
    assert!(deadline.why.contains("table 'a'"), "{}", deadline.why);
    assert_eq!(host.size("a"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_its_table_refuses_leaves_the_others_alone() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let first = session.take_id(3);
    let mut insert = insert(first, 0, &[1.0, 2.0, 3.0], 1);
    let infinite = [&insert.items[..48], &f64::INFINITY.to_le_bytes(), &insert.items[56..]].concat();
    insert.items = infinite.into();
    session.send.send(message(ClientBody::Insert(insert))).unwrap();
    let (mut confirmed, mut refused) = (Vec::new(), Vec::new());
    while confirmed.len() + refused.len() < 3 {
        match session.next().await {
            Some(proto::server_message::Body::Inserted(inserted)) => {
                confirmed.extend((0..u64::from(inserted.requests)).map(|at| inserted.first_id + at));
            }
            Some(proto::server_message::Body::Reply(reply)) => {
                assert!(matches!(reply.body, Some(reply::Body::Error(_))));
                refused.push(reply.id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((confirmed, refused), (vec![first, first + 2], vec![first + 1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_learns_when_its_inserts_begin_to_wait_for_their_tables_and_when_the_last_is_in() {
    let host = Host::new(vec![queue("a", 1), table("b")]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0]);
    session.inserted(first, 1).await;
    session.insert(0, &[2.0, 3.0]);
    let other = session.insert(1, &[4.0]);
    session.inserted(other, 1).await;
    assert_eq!(session.held, [true], "once, and not before");
    for expected in [&[true][..], &[true, false]] {
        let id = session.ask(sample("a", 1), None);
        let (mut confirmed, mut drawn) = (false, false);
        while !(confirmed && drawn) {
            match session.next().await.unwrap() {
                proto::server_message::Body::Inserted(_) => confirmed = true,
                proto::server_message::Body::Part(part) => {
                    drawn = part.id == id;
                    session.received(0, &[id]);
                }
                _ => {}
            }
        }
        // This response arrives after all messages that were sent before it.
        let id = session.ask(request::Body::Info(proto::InfoRequest {}), None);
        session.reply(id).await;
        assert_eq!(session.held, expected);
    }
}
