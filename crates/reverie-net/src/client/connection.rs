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
const NAP: Duration = Duration::from_micros(300);
/// After this time with nothing else to send, the client reports to the server what it may forget.
const TIDY: Duration = Duration::from_millis(20);

/// The time for which a client that ends waits for the server to notice.
const FAREWELL: Duration = Duration::from_millis(500);
/// The interval at which an idle client checks whether the state that the server keeps for it is still used.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs the connection until the client ends (`Ok`) or the connection fails (`Err`).
pub(super) async fn talk<O: Outlet, I: Inlet>(engine: &mut Engine, outlet: &mut O, inlet: &mut I) -> Result<()> {
    let outbox = std::sync::Arc::clone(&engine.outbox);
    let mut quiet = IdleTimers::default();
    loop {
        let idle = if quiet.nap.is_some() { TaskState::Napping } else { TaskState::Sleeping };
        engine.ask_for_the_disk();
        if engine.absorb(idle) && engine.has_untold() {
            quiet.tidy_later();
        }
        engine.expire();
        if engine.should_end() {
            let leaving = take_leave(engine, outlet, inlet);
            let _ = tokio::time::timeout(FAREWELL, leaving).await;
            return Ok(());
        }
        let sends = engine.has_message();
        let tidies = !sends && quiet.tidies;
        let bytes = match (sends, tidies) {
            (true, _) => engine.next_bytes(O::MESSAGE_BYTES),
            (false, true) => {
                engine.encoder.tidy(O::MESSAGE_BYTES);
                engine.encoder.planned_bytes()
            }
            (false, false) => 0,
        };
        let timer = engine.next_timer().into_iter().chain(quiet.timer()).min();
        tokio::select! {
            biased;
            ready = outlet.ready(bytes), if sends || tidies || outlet.is_pressed() => {
                ready?;
                if sends {
                    quiet.sent(engine.send(outlet)?);
                } else if tidies {
                    quiet = IdleTimers::default();
                    engine.tidy(outlet)?;
                    if engine.encoder.names_any() {
                        quiet.tidy = Some(Instant::now() + LOOK_AGAIN);
                    }
                }
            }
            arrived = inlet.receive() => {
                let Some(arrived) = arrived? else {
                    let address = outbox.address();
                    return Err(Error::Unavailable(format!("the server at {address} closed the connection")));
                };
                engine.take(arrived)?;
                if engine.has_untold() {
                    quiet.tidy_later();
                }
            }
            () = outbox.wake.notified() => {}
            () = until(timer) => quiet.wake(Instant::now()),
            // The work that was taken may have led to no message, or the outlet takes none.
            () = outbox.sleeps(idle) => {}
        }
    }
}

/// Tells the server that the client ends and what it received, and waits until the server closes the connection.
async fn take_leave<O: Outlet, I: Inlet>(engine: &mut Engine, outlet: &mut O, inlet: &mut I) -> Result<()> {
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
    nap: Option<Instant>,
    tidy: Option<Instant>,
    /// True when it is time to tidy.
    tidies: bool,
}

impl IdleTimers {
    fn timer(&self) -> Option<Instant> {
        self.nap.into_iter().chain(self.tidy).min()
    }

    /// Starts the timers after a message was sent.
    fn sent(&mut self, said: MessageKind) {
        if said == MessageKind::Other {
            return;
        }
        let now = Instant::now();
        self.nap = Some(now + NAP);
        if said == MessageKind::Insert {
            self.tidy = Some(now + TIDY);
        }
    }

    fn tidy_later(&mut self) {
        let soon = Instant::now() + TIDY;
        self.tidy = Some(self.tidy.map_or(soon, |tidy| tidy.min(soon)));
    }

    fn wake(&mut self, now: Instant) {
        if self.nap.is_some_and(|nap| nap <= now) {
            self.nap = None;
        }
        if self.tidy.is_some_and(|tidy| tidy <= now) {
            (self.tidy, self.tidies) = (None, true);
        }
    }
}
