//! A client whose task ends before it: by a panic, or with its runtime. Every call ends with the reason.

use super::fake::ADDRESS;
use super::support::{SECOND, draws};
use reverie_core::Error;
use reverie_core::replay::Replay;
use reverie_net::client::Remote;
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::grpc::connector::{Connecting, Connector};
use std::sync::Arc;

/// A network that never connects, or panics.
struct Network {
    panics: bool,
}

impl Connector for Network {
    fn connect(&self, _: &str) -> Connecting {
        assert!(!self.panics, "a test's own panic");
        Box::pin(std::future::pending())
    }
}

fn client(panics: bool, runtime: &tokio::runtime::Handle) -> Arc<Remote> {
    let options = EndpointOptions {
        address: ADDRESS.to_owned(),
        transport: Transport::Grpc,
        token: None,
        tls: None,
        patience: 60 * SECOND,
        grace: SECOND,
        max_kept_bytes: KEPT_BYTES,
    };
    Remote::on(options, runtime, Arc::new(Network { panics }), [3; 16]).unwrap()
}

/// All calls of a client that has failed, with or without a deadline.
fn assert_fails(client: &Arc<Remote>, reason: &str) {
    let is_expected = |error: &Error| {
        assert!(matches!(error, Error::Unavailable(text) if text.contains(reason)), "{error}");
    };
    for timeout in [None, Some(SECOND)] {
        let sampled = client.draw(draws(1), timeout).poll().expect("at once").unwrap();
        is_expected(&sampled.error.expect("it has none"));
    }
    is_expected(&client.info().poll().expect("at once").unwrap_err());
    is_expected(&client.describe().poll().expect("at once").unwrap_err());
    is_expected(&client.insert_outcome(1).poll().expect("at once").unwrap_err());
    assert!(!client.link().connected);
    assert!(client.outage().is_some_and(|outage| outage.contains(reason)));
}

#[tokio::test]
async fn after_a_panic_of_the_clients_task_every_call_fails_at_once_and_asks_for_a_report() {
    let client = client(true, &tokio::runtime::Handle::current());
    // The first call makes the task connect, which panics.
    let error = client.draw(draws(1), None).await.err();
    assert!(matches!(error, Some(Error::Unavailable(_))), "{error:?}");
    assert_fails(&client, "its task panicked, which is a defect in reverie: please report it");
    // A caller that gives up waits for nothing.
    let mut info = client.info();
    info.withdraw();
    assert!(info.poll().is_some());
    client.close();
}

#[test]
fn a_client_whose_runtime_has_ended_fails_every_call_at_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = client(false, runtime.handle());
    let mut waiting = client.draw(draws(1), None);
    drop(runtime);
    assert!(waiting.poll().is_some(), "it waits for no task any more");
    assert_fails(&client, "its thread has ended");
}
