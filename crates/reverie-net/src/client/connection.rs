//! One connection: the sending, the receiving and the sleeping of the client's task.

use super::engine::Engine;
use super::outbox::TaskState;
use super::outgoing::MessageKind;
use crate::transport::client::{Inlet, Outlet};
use reverie_core::{Error, Result};
use std::time::Duration;
use tokio::time::Instant;

/// The time for which inserts, and requests that no caller waits for, are gathered after others were sent.
/// It is cut short when a caller waits for them.
const COALESCE_TIME: Duration = Duration::from_micros(300);
/// After this time with nothing else to send, the client reports to the server what it may forget.
const TIDY: Duration = Duration::from_millis(20);

/// The time for which a client that ends waits for the server to notice.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval at which an idle client checks whether the state that the server keeps for it is still used.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the connection until the client ends (`Ok`) or the connection fails (`Err`).
pub(super) async fn run_connection<O: Outlet, I: Inlet>(
    engine: &mut Engine,
    outlet: &mut O,
    inlet: &mut I,
) -> Result<()> {
    let outbox = std::sync::Arc::clone(&engine.outbox);
    let mut timers = IdleTimers::default();
    loop {
        let idle = if timers.coalesce.is_some() { TaskState::Coalescing } else { TaskState::Sleeping };
        engine.ask_for_the_disk();
        if engine.take_queued(idle) && engine.has_unreported() {
            timers.tidy_later();
        }
        engine.expire();
        if engine.should_end() {
            let leaving = disconnect(engine, outlet, inlet);
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, leaving).await;
            return Ok(());
        }
        let sends = engine.has_message();
        let tidies = !sends && timers.tidies;
        let bytes = match (sends, tidies) {
            (true, _) => engine.next_bytes(O::MESSAGE_BYTES),
            (false, true) => {
                engine.encoder.tidy(O::MESSAGE_BYTES);
                engine.encoder.planned_bytes()
            }
            (false, false) => 0,
        };
        let timer = engine.next_timer().into_iter().chain(timers.timer()).min();
        tokio::select! {
            biased;
            ready = outlet.ready(bytes), if sends || tidies || outlet.is_pressed() => {
                ready?;
                if sends {
                    timers.sent(engine.send(outlet)?);
                } else if tidies {
                    timers = IdleTimers::default();
                    engine.tidy(outlet)?;
                    if engine.encoder.names_any() {
                        timers.tidy = Some(Instant::now() + IDLE_CHECK_INTERVAL);
                    }
                }
            }
            arrived = inlet.receive() => {
                let Some(arrived) = arrived? else {
                    let address = outbox.address();
                    return Err(Error::Unavailable(format!("the server at {address} closed the connection")));
                };
                engine.take(arrived)?;
                if engine.has_unreported() {
                    timers.tidy_later();
                }
            }
            () = outbox.wake.notified() => {}
            () = until(timer) => timers.wake(Instant::now()),
            // The work that was taken may have led to no message, or the outlet takes none.
            () = outbox.sleeps(idle) => {}
        }
    }
}

/// Tells the server that the client ends and what it received, and waits until the server closes the connection.
async fn disconnect<O: Outlet, I: Inlet>(engine: &mut Engine, outlet: &mut O, inlet: &mut I) -> Result<()> {
    outlet.ready(0).await?;
    engine.leave(outlet)?;
    loop {
        tokio::select! {
            biased;
            arrived = inlet.receive() => if arrived?.is_none() { return Ok(()) },
            ready = outlet.ready(0), if outlet.is_pressed() => ready?,
        }
    }
}

/// Sleeps until the timer; forever if there is none.
pub(super) async fn until(timer: Option<Instant>) {
    match timer {
        Some(timer) => tokio::time::sleep_until(timer).await,
        None => std::future::pending().await,
    }
}

/// The times at which the task wakes although nothing happens.
#[derive(Default)]
struct IdleTimers {
    coalesce: Option<Instant>,
    tidy: Option<Instant>,
    /// True when it is time to tidy.
    tidies: bool,
}

impl IdleTimers {
    fn timer(&self) -> Option<Instant> {
        self.coalesce.into_iter().chain(self.tidy).min()
    }

    /// Starts the timers after a message was sent.
    fn sent(&mut self, kind: MessageKind) {
        if kind == MessageKind::Other {
            return;
        }
        let now = Instant::now();
        self.coalesce = Some(now + COALESCE_TIME);
        if kind == MessageKind::Insert {
            self.tidy = Some(now + TIDY);
        }
    }

    fn tidy_later(&mut self) {
        let soon = Instant::now() + TIDY;
        self.tidy = Some(self.tidy.map_or(soon, |tidy| tidy.min(soon)));
    }

    fn wake(&mut self, now: Instant) {
        if self.coalesce.is_some_and(|coalesce| coalesce <= now) {
            self.coalesce = None;
        }
        if self.tidy.is_some_and(|tidy| tidy <= now) {
            (self.tidy, self.tidies) = (None, true);
        }
    }
}
