//! The client's one task: connects when there is work, and reconnects when a connection is lost.

use super::connection::{run_connection, until};
use super::dial::{ConnectionHalves, EstablishedConnection, SessionDialer};
use super::engine::Engine;
use super::outbox::TaskState;
use super::round_trip::RoundTrip;
use crate::convert;
use crate::grpc::client::GrpcOutlet;
use crate::local::LocalOutlet;
use crate::proto;
use crate::transport::client::Outlet;
use reverie_core::{Error, Result};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between attempts: the first, doubled each time, up to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Runs until the client ends.
pub(super) async fn run(mut engine: Engine, dial: SessionDialer, seed: u64) {
    let mut life = ReconnectState { incarnation: None, jitter: seed };
    while wait_for_work(&mut engine).await {
        engine.outage = Some(Instant::now());
        match life.connect(&mut engine, &dial).await {
            None => continue,
            Some(Err(error)) => {
                tracing::warn!("{error}");
                engine.fail_all(&error);
                // Draws that the program has not taken are a reason to try again, and none to hurry.
                meanwhile(&mut engine, tokio::time::sleep(BACKOFF.1)).await;
            }
            Some(Ok(dialed)) => match life.serve(&mut engine, dialed).await {
                Ok(()) => {}
                Err(error) => lose(&mut engine, &error),
            },
        }
    }
    engine.end();
}

/// Sleeps until there is work; false if the client ends.
async fn wait_for_work(engine: &mut Engine) -> bool {
    loop {
        engine.take_all_queued(TaskState::Sleeping);
        if engine.should_end() {
            return false;
        }
        if !engine.needs_no_connection() {
            return true;
        }
        let outbox = Arc::clone(&engine.outbox);
        outbox.wake.notified().await;
    }
}

/// Handles a lost connection. An error that a new connection cannot fix ends all work under way.
fn lose(engine: &mut Engine, error: &Error) {
    engine.outbox.show(|link| link.connected = false);
    engine.lost(error);
    engine.take_all_queued(TaskState::Busy);
    if engine.should_end() {
        // The client was closed meanwhile: the loss needs no report.
        return;
    }
    if let Error::Unavailable(reason) = error {
        tracing::warn!("the connection to {} was lost: {reason}", engine.outbox.address());
    } else {
        tracing::warn!("the connection to {} is ended: {error}", engine.outbox.address());
        engine.fail_all(error);
    }
}

struct ReconnectState {
    /// The incarnation of the server that was connected to last.
    incarnation: Option<u64>,
    jitter: u64,
}

impl ReconnectState {
    /// Retries until connected (`Some(Ok)`), until an error is permanent, or until nothing needs a connection (`None`).
    async fn connect(&mut self, engine: &mut Engine, dial: &SessionDialer) -> Option<Result<EstablishedConnection>> {
        let (since, mut pause) = (Instant::now(), BACKOFF.0);
        loop {
            let dialed = meanwhile(engine, dial.dial(self.incarnation.is_some())).await?;
            let error = match dialed {
                Err(error @ Error::Unavailable(_)) => error,
                // `Unavailable` may be temporary: a server that just restarted may have no socket yet, or find
                // another's there.
                done => return Some(done),
            };
            engine.last_error = error.to_string();
            engine.note_outage(since);
            let pause_now = pause.mul_f64(0.5 + 0.5 * self.random());
            meanwhile(engine, tokio::time::sleep(pause_now)).await?;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// A random number from 0 to 1, so that clients that lost one server do not reconnect all at once.
    fn random(&mut self) -> f64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.jitter;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }

    /// Works on a connection until it ends.
    async fn serve(&mut self, engine: &mut Engine, dialed: EstablishedConnection) -> Result<()> {
        let EstablishedConnection { halves, hello, description, reason, round_trip } = dialed;
        engine.requests.measured(round_trip);
        engine.requests.set_commit_grace(Duration::from_millis(u64::from(hello.commit_grace_ms)));
        engine.outbox.set_grace(engine.requests.grace());
        let before = self.incarnation.replace(hello.incarnation);
        let (again, restarted) = (before.is_some(), before.is_some_and(|before| before != hello.incarnation));
        let transport = match &halves {
            ConnectionHalves::Grpc(..) => GrpcOutlet::TRANSPORT,
            ConnectionHalves::Local(..) => LocalOutlet::TRANSPORT,
        };
        let address = engine.outbox.address().to_owned();
        let is_forgotten = again && (restarted || !hello.resumed);
        if is_forgotten {
            // The program keeps the draws that it has taken by now. The others are forgotten before it can see that
            // there is a connection.
            let forgotten = engine.outbox.forget_leases(engine.requests.leased_ids());
            engine.requests.return_leased(&forgotten);
        }
        engine.outbox.show(|link| {
            link.transport = Some(transport.into());
            link.reason.clone_from(&reason);
            link.connected = true;
            link.reconnects += u64::from(again);
            link.server_restarts += u64::from(restarted);
        });
        engine.round_trip = RoundTrip::of(round_trip);
        engine.outbox.set_round_trip(round_trip);
        // Set before `begin`: a caller that waits for the description then reads the current link.
        engine.begin(description, hello.insert_credit_bytes)?;
        if is_forgotten {
            engine.requests.server_restarted(&address);
        }
        match restarted {
            // Also for a restarted server that was restored from a checkpoint of the one before.
            _ if hello.forgot => {
                engine.forgotten(&address);
                engine.drop_kept();
            }
            true => {
                engine.inserts.server_restarted();
                engine.send_kept_again();
            }
            false => {}
        }
        engine.keeps = hello.durable_later;
        engine.ask_again();
        match (again, restarted) {
            (false, _) => tracing::info!("connected to {address} by {transport}: {reason}"),
            (true, false) => tracing::warn!("connected to {address} again, by {transport}"),
            (true, true) => tracing::warn!(
                "connected to {address} again: the server was restarted; unconfirmed inserts are sent again"
            ),
        }
        match halves {
            ConnectionHalves::Grpc(mut sending, mut receiving) => {
                run_connection(engine, &mut sending, &mut receiving).await
            }
            ConnectionHalves::Local(mut outlet, mut inlet) => run_connection(engine, &mut outlet, &mut inlet).await,
        }
    }
}

/// Runs a step of connecting, and answers callers whose time is over.
/// `None` if nothing needs a connection any more.
async fn meanwhile<F: Future>(engine: &mut Engine, step: F) -> Option<F::Output> {
    let outbox = Arc::clone(&engine.outbox);
    tokio::pin!(step);
    loop {
        engine.take_all_queued(TaskState::Sleeping);
        engine.expire();
        if engine.should_end() || engine.needs_no_connection() {
            return None;
        }
        tokio::select! {
            biased;
            done = &mut step => return Some(done),
            () = outbox.wake.notified() => {}
            () = until(engine.next_timer()) => {}
        }
    }
}

impl Engine {
    /// Starts the work on a new connection: unconfirmed inserts and requests are sent again.
    fn begin(&mut self, description: proto::Description, credit: u64) -> Result<()> {
        let proto::Description { version, tables, .. } = description;
        let tables: Vec<_> = tables.into_iter().map(convert::table::decode_options).collect::<Result<_>>()?;
        let numbers = self.outbox.describe(version, tables)?;
        let names = self.outbox.table_names();
        self.tables = vec![None; names.len()];
        for (number, own) in numbers.iter().enumerate() {
            self.tables[*own] = Some(number as u32);
        }
        self.credit = credit;
        self.outage = None;
        self.refuse_unknown_tables();
        self.outbox.set_outage(None);
        if let Some(described) = self.outbox.described() {
            self.requests.describe(&described);
        }
        Ok(())
    }

    /// Ends the inserts in doubt: the server is the same, and has forgotten the session.
    fn forgotten(&mut self, address: &str) {
        let num_unknown = self.inserts.forgotten(&Error::Unavailable(format!(
            "{address} was unreachable for longer than its session timeout. The outcome of this insert is unknown. It was \
             not sent again."
        )));
        if num_unknown > 0 {
            tracing::warn!(
                "{address} was unreachable for longer than its session timeout: the outcome of {num_unknown} inserts \
                 is unknown"
            );
        }
    }

    fn note_outage(&mut self, since: Instant) {
        let (address, last_error) = (self.outbox.address(), &self.last_error);
        let seconds = since.elapsed().as_secs_f64();
        self.outbox.set_outage(Some(format!("{address} could not be reached for {seconds:.1} s ({last_error})")));
    }

    /// Ends the client: all work fails with `ClientClosed`.
    fn end(&mut self) {
        self.fail_all(&Error::ClientClosed { address: self.outbox.address().to_owned() });
        self.outbox.show(|link| link.connected = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::outbox::{ClientEnding, Outbox};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing::span;

    /// Counts what is logged.
    struct LogCounter(Arc<AtomicUsize>);

    impl tracing::Subscriber for LogCounter {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn a_lost_connection_is_logged_unless_the_client_was_closed_meanwhile() {
        for (ending, expected) in [(ClientEnding::No, 1), (ClientEnding::Now, 0)] {
            let lines = Arc::new(AtomicUsize::new(0));
            let outbox = Outbox::new("replay.test:8000");
            let mut engine = Engine::new(Arc::clone(&outbox), (Duration::ZERO, Duration::ZERO), 0);
            outbox.end(ending);
            let lose = || lose(&mut engine, &Error::Unavailable("the server closed the connection".to_owned()));
            tracing::subscriber::with_default(LogCounter(Arc::clone(&lines)), lose);
            assert_eq!(lines.load(Ordering::Relaxed), expected, "{ending:?}");
        }
    }
}
