use crate::support::*;
use reverie_core::table::Priority;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, reply, request};
use std::sync::Arc;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_describes_itself() {
    let host = Host::new(vec![table("a"), queue("b", 3)]);
    let mut client = host.client().await;
    let request = || proto::DescribeRequest { protocol: proto::PROTOCOL };
    let described = client.describe(request()).await.unwrap().into_inner();
    let names: Vec<_> = described.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!((described.protocol, names), (proto::PROTOCOL, vec!["a", "b"]));
    assert_eq!(described.tables[1].max_times_sampled, 1);
    assert_eq!(described.max_message_bytes, proto::MAX_MESSAGE_BYTES as u64);
    let again = client.describe(request()).await.unwrap().into_inner().incarnation;
    assert_eq!(described.incarnation, again);
    let other = Host::new(vec![table("a")]);
    let other = other.client().await.describe(request()).await.unwrap().into_inner().incarnation;
    assert!(described.incarnation != 0 && described.incarnation != other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn small_requests_are_answered() {
    let host = Host::new(vec![table("a"), queue("b", 3)]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let mut session = host.session(1).await;
    let can = |count, insert| request::Body::Can(proto::Can { table: "b".to_owned(), count, insert });
    for (count, insert, want) in [(3, true, true), (4, true, false), (1, false, false)] {
        let id = session.ask(can(count, insert), None);
        assert_eq!(session.reply(id).await, reply::Body::Can(want), "{count} {insert}");
    }
    let change = proto::Configure { table: "a".to_owned(), max_size: Some(2), ..Default::default() };
    let id = session.ask(request::Body::Configure(change), None);
    assert_eq!(session.reply(id).await, reply::Body::Done(proto::Done {}));
    let id = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    let reply::Body::Info(info) = session.reply(id).await else { panic!("not the info") };
    assert_eq!((info.tables[0].size, info.tables[0].inserts, info.grpc_connections), (2, 3, 1));
    let id = session.ask(request::Body::Why("b".to_owned()), None);
    let reply::Body::Why(why) = session.reply(id).await else { panic!("not why") };
    assert!(why.text.contains("table 'b'") && !why.sample_reason.is_empty(), "{why:?}");
    let id = session.ask(request::Body::Reset("a".to_owned()), None);
    assert_eq!(session.reply(id).await, reply::Body::Done(proto::Done {}));
    assert_eq!(host.size("a"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn mutations_delete_and_then_update_where_the_version_is_right() {
    let host = Host::new(vec![table("a")]);
    let mut rows = Rows::new(&host.tables);
    let items = (0..4).map(|value| (rows.item(&[f64::from(value)]), Priority::Value(1.0))).collect();
    let keys = host.tables.get("a").unwrap().insert(items).unwrap().poll().unwrap().unwrap();
    let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
    let mut session = host.session(1).await;
    let mutate = proto::Mutate {
        table: "a".to_owned(),
        keys: convert::numbers::encode(&keys[..3]),
        priorities: convert::numbers::encode(&[5.0, 6.0, 7.0]),
        if_version: convert::numbers::encode(&[0_u32, 9, 0]),
        deletes: convert::numbers::encode(&[keys[2], 12345]),
        neighbours: None,
    };
    let id = session.ask(request::Body::Mutate(mutate), None);
    let want = proto::Mutated { applied: 1, stale: 2, deleted: 1, stale_deletes: 1 };
    assert_eq!(session.reply(id).await, reply::Body::Mutated(want));
    let get = proto::Get { table: "a".to_owned(), keys: convert::numbers::encode(&[keys[3], keys[0]]), reading: None };
    let id = session.ask(request::Body::Get(get), None);
    let batch = session.whole(id).await;
    assert_eq!((batch.values(), batch.keys()), (vec![3.0, 0.0], vec![keys[3], keys[0]]));
    assert_eq!(batch.info[2][8..], 5.0f64.to_le_bytes());
    let get = proto::Get { table: "a".to_owned(), keys: convert::numbers::encode(&[keys[2]]), reading: None };
    let id = session.ask(request::Body::Get(get), None);
    assert!(matches!(session.refusal(id).await, Kind::UnknownKey(unknown) if unknown.key == keys[2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn invalid_requests_are_refused_and_the_session_goes_on() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("b", 1), None);
    assert!(matches!(session.refusal(id).await, Kind::UnknownTable(unknown) if unknown.known == ["a"]));
    for (body, timeout) in [
        (sample("a", 0), None),
        (sample("a", u32::MAX), None),
        (sample("a", 1), Some(-1.0)),
        (sample("a", 1), Some(f64::NAN)),
        (request::Body::Sample(proto::Sample::default()), None),
        (request::Body::Checkpoint(proto::CheckpointRequest {}), None),
    ] {
        let id = session.ask(body.clone(), timeout);
        assert!(matches!(session.refusal(id).await, Kind::InvalidArgument(_)), "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_checkpoint_is_taken_off_the_session() {
    let (start, go) = std::sync::mpsc::channel::<()>();
    let go = std::sync::Mutex::new(go);
    let checkpoint: Arc<dyn Fn() -> reverie_core::Result<String> + Send + Sync> = Arc::new(move || {
        go.lock().unwrap().recv().unwrap();
        Ok("/there".to_owned())
    });
    let host =
        Host::with(vec![table("a")], reverie_net::server::ServerOptions { checkpoint: Some(checkpoint), ..options() });
    let mut session = host.session(1).await;
    let slow = session.ask(request::Body::Checkpoint(proto::CheckpointRequest {}), None);
    let quick = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(quick).await, reply::Body::Info(_)));
    start.send(()).unwrap();
    assert_eq!(session.reply(slow).await, reply::Body::Checkpoint("/there".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_checkpoint_that_is_cancelled_and_asked_for_again_is_taken_once() {
    let (start, go) = std::sync::mpsc::channel::<()>();
    let state = std::sync::Mutex::new((go, 0));
    let checkpoint: Arc<dyn Fn() -> reverie_core::Result<String> + Send + Sync> = Arc::new(move || {
        let (go, taken) = &mut *state.lock().unwrap();
        go.recv().unwrap();
        *taken += 1;
        Ok(format!("/{taken}"))
    });
    let host =
        Host::with(vec![table("a")], reverie_net::server::ServerOptions { checkpoint: Some(checkpoint), ..options() });
    let mut session = host.session(1).await;
    let body = || request::Body::Checkpoint(proto::CheckpointRequest {});
    let id = session.ask(body(), None);
    session.send.send(message(ClientBody::Cancel(proto::Cancel { id, insert: false }))).unwrap();
    session.ask_again(id, body(), None);
    session.settle().await;
    start.send(()).unwrap();
    assert_eq!(session.reply(id).await, reply::Body::Checkpoint("/1".to_owned()));
    let next = session.ask(body(), None);
    // One for this request, and one for a second checkpoint of the first, which must not be.
    (0..2).for_each(|_| start.send(()).unwrap());
    assert_eq!(session.reply(next).await, reply::Body::Checkpoint("/2".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_tables_answers_that_nothing_becomes_durable() {
    let host = Host::without_tables();
    let mut session = host.session(1).await;
    for later in [false, true] {
        let id = session.ask(request::Body::Durable(proto::Durable { later }), None);
        assert!(matches!(session.refusal(id).await, Kind::InvalidArgument(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_script_sends_one_request_without_a_session() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [4.0]);
    let mut client = host.client().await;
    let request = proto::Request { id: 1, timeout: None, body: Some(sample("a", 2)) };
    let mut answer = client.call(message(ClientBody::Request(request))).await.unwrap().into_inner();
    let mut bodies = Vec::new();
    while let Some(message) = answer.message().await.unwrap() {
        bodies.push(message.body.unwrap());
    }
    assert!(matches!(&bodies[..], [Body::Batch(batch), Body::Part(_)] if batch.num_draws == 2 && batch.last));
    let mut answer = client.call(message(ClientBody::Insert(insert(1, 0, &[5.0], 1)))).await.unwrap().into_inner();
    let body = answer.message().await.unwrap().unwrap().body.unwrap();
    assert!(matches!(body, Body::Inserted(inserted) if inserted.keys.len() == 1));
    assert!(answer.message().await.unwrap().is_none());
    assert_eq!(host.size("a"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_is_reported_and_the_services_are_listed() {
    let host = Host::new(vec![table("a")]);
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", host.server.address())).unwrap();
    let channel = channel.connect().await.unwrap();
    let service = HealthCheckRequest { service: "reverie.v1.Replay".to_owned() };
    let health = HealthClient::new(channel.clone()).check(service).await.unwrap().into_inner();
    assert_eq!(health.status, 1);
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_response::MessageResponse};
    let list = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let answers = ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(list)).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = answer else { panic!("not a list") };
    assert!(services.service.iter().any(|service| service.name == "reverie.v1.Replay"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stop_ends_waiting_requests_and_notifies_the_clients() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 1), None);
    // The reply to the second shows that the first has arrived.
    let second = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(second).await, reply::Body::Info(_)));
    let Host { server, tables } = host;
    let stopped = tokio::task::spawn_blocking(move || {
        server.stop();
        server.stop();
    });
    assert!(matches!(session.refusal(id).await, Kind::Closed(name) if name == "a"));
    assert!(session.goodbye().await.stopping);
    stopped.await.unwrap();
    assert!(tables.get("a").unwrap().reset().is_err(), "the tables are closed");
}
