//! The memory that sessions use on the server in addition to its tables, counted over all of them.

use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The least that a session may use, whatever the others use.
/// It is more if the session's share of a quarter of the total is more. Otherwise one session could use the total and
/// stop all others.
const FREE_BYTES: u64 = 64 << 10;

/// The total of a server, and its use.
pub(crate) struct Charges {
    total: u64,
    used: AtomicU64,
    sessions: AtomicU64,
}

/// The memory that one session uses.
pub(crate) struct Charge {
    charges: Arc<Charges>,
    held: u64,
    /// Bytes of a message that is not complete yet.
    unfinished: u64,
}

impl Charges {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, used: AtomicU64::new(0), sessions: AtomicU64::new(0) })
    }

    /// The bytes that each session may use, whatever the others use.
    fn free(&self) -> u64 {
        (self.total / 4 / self.sessions.load(Ordering::Relaxed).max(1)).max(FREE_BYTES)
    }

    /// The bytes that all sessions use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// The charge of a new session, which uses nothing.
    pub(crate) fn new(charges: &Arc<Charges>) -> Self {
        charges.sessions.fetch_add(1, Ordering::Relaxed);
        Self { charges: Arc::clone(charges), held: 0, unfinished: 0 }
    }

    /// The charge of a server's only session.
    #[cfg(test)]
    pub(crate) fn of_total(total: u64) -> Self {
        Self::new(&Charges::new(total))
    }

    /// Sets the bytes that the session uses.
    /// `ResourceExhausted` if they grow and the total is exceeded by more than a quarter, which is left for admitted
    /// work that turned out larger.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.held {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.held, bytes);
        self.change(before, bytes)
    }

    /// As [`Charge::hold`], for the bytes of an incomplete message.
    pub(crate) fn receive(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.unfinished {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.unfinished, bytes);
        self.change(before, bytes)
    }

    /// True if the session must not request more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.charges.free() && self.charges.used() > self.charges.total
    }

    /// The bytes that the session may use in addition.
    pub(super) fn room(&self) -> u64 {
        let free = self.charges.free().saturating_sub(self.bytes());
        self.charges.total.saturating_sub(self.charges.used()).max(free)
    }

    /// The error for a session that may use no more.
    pub(super) fn refusal(&self) -> Error {
        Error::ResourceExhausted {
            what: format!(
                "a session that holds {} bytes of inserts that wait, of draws and of answers that were not received",
                self.bytes()
            ),
            needed: self.charges.used(),
            budget: self.charges.total,
            hint: "keep fewer requests and inserts under way, or give the server more (memory=)".to_owned(),
        }
    }

    fn bytes(&self) -> u64 {
        self.held.saturating_add(self.unfinished)
    }

    fn change(&mut self, before: u64, now: u64) -> Result<()> {
        if now <= before {
            self.charges.used.fetch_sub(before - now, Ordering::Relaxed);
            return Ok(());
        }
        let used = self.charges.used.fetch_add(now - before, Ordering::Relaxed) + (now - before);
        let total = self.charges.total;
        match used > total.saturating_add(total / 4) && self.bytes() > self.charges.free() {
            true => Err(self.refusal()),
            false => Ok(()),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charges.used.fetch_sub(self.bytes(), Ordering::Relaxed);
        self.charges.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_fills_the_total_is_refused_more_and_the_others_keep_their_share() {
        const MIB: u64 = 1 << 20;
        let charges = Charges::new(80 * MIB);
        let (mut large, mut small) = (Charge::new(&charges), Charge::new(&charges));
        large.hold(75 * MIB).unwrap();
        assert_eq!((large.room(), small.room(), large.is_full()), (5 * MIB, 10 * MIB, false));
        large.receive(15 * MIB).unwrap();
        assert!(large.is_full() && !small.is_full());
        assert_eq!((large.room(), small.room()), (0, 10 * MIB));
        assert!(matches!(large.hold(95 * MIB), Err(Error::ResourceExhausted { budget, .. }) if budget == 80 * MIB));
        small.hold(10 * MIB).unwrap();
        assert!(small.hold(10 * MIB + 1).is_err());
        drop(large);
        assert_eq!(charges.used(), 10 * MIB + 1);
        assert_eq!(small.room(), 70 * MIB - 1);
        drop(small);
        assert_eq!(charges.used(), 0);
    }
}
