//! What sessions make the server hold beside its tables, counted in all of them together.

use super::session::Session;
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A session may hold so much whatever the others do, and its share of a quarter of the total where that is more: else one
/// that fills the total would stop them all.
const FREE_BYTES: u64 = 64 << 10;

/// The total of a server.
pub(crate) struct Charges {
    total: u64,
    used: AtomicU64,
    sessions: AtomicU64,
}

/// What one session holds.
pub(crate) struct Charge {
    charges: Arc<Charges>,
    held: u64,
    /// Of a message that is not whole yet.
    unfinished: u64,
}

impl Charges {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, used: AtomicU64::new(0), sessions: AtomicU64::new(0) })
    }

    /// What each session may hold whatever the others do.
    fn free(&self) -> u64 {
        (self.total / 4 / self.sessions.load(Ordering::Relaxed).max(1)).max(FREE_BYTES)
    }

    /// What all sessions hold.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// Of a session that holds nothing.
    pub(crate) fn new(charges: &Arc<Charges>) -> Self {
        charges.sessions.fetch_add(1, Ordering::Relaxed);
        Self { charges: Arc::clone(charges), held: 0, unfinished: 0 }
    }

    /// Of the only one of a server.
    #[cfg(test)]
    pub(crate) fn of_total(total: u64) -> Self {
        Self::new(&Charges::new(total))
    }

    /// The session holds so many bytes now. `ResourceExhausted` where it is more than before and far beyond the total:
    /// a quarter of it is left to what was admitted and turned out to be more.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.held {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.held, bytes);
        self.change(before, bytes)
    }

    /// The same of the bytes of a message of which a part has come.
    pub(crate) fn receive(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.unfinished {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.unfinished, bytes);
        self.change(before, bytes)
    }

    /// True where the session must not ask for more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.charges.free() && self.charges.used() > self.charges.total
    }

    /// What the session may hold beyond what it holds now.
    pub(super) fn room(&self) -> u64 {
        let free = self.charges.free().saturating_sub(self.bytes());
        self.charges.total.saturating_sub(self.charges.used()).max(free)
    }

    /// Why it may hold no more.
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

impl Session {
    /// Counts what the session holds. `ResourceExhausted` where that is more than it may.
    pub(super) fn weigh(&mut self) -> Result<()> {
        let own = self.memory.size_bytes() + self.inserts.held_bytes() + self.asked_bytes;
        let Some(link) = &mut self.link else { return self.charge.hold(own) };
        self.charge.hold(own + link.decoder.held_bytes()).or_else(|_| {
            // Chunks that are in tables by now may have been counted.
            self.charge.hold(own + link.decoder.reckon())
        })
    }

    /// Where the session seems to hold too much to ask for more: counts again, without chunks that are in tables by now.
    pub(super) fn weigh_if_full(&mut self) {
        if self.charge.is_full()
            && let Some(link) = &mut self.link
        {
            let own = self.memory.size_bytes() + self.inserts.held_bytes() + self.asked_bytes;
            // Where it is too much all the same, the next event ends the session.
            let _ = self.charge.hold(own + link.decoder.reckon());
        }
    }

    /// Ends a session that holds too much, with all that it holds.
    pub(super) fn give_up(&mut self, error: Error) -> bool {
        self.say_goodbye(error, false);
        if let Some(id) = self.id.filter(|_| !self.is_empty()) {
            self.shared.forget_outcomes(id);
        }
        false
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
