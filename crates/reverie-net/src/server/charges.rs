//! The memory that sessions use on the server in addition to its tables, counted over all of them.

use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The least and the most of [`Charges::guaranteed`], which is a 64th of the total. A session that uses no more than that
/// is never ended because others use the total.
const GUARANTEED_BYTES: (u64, u64) = (64 << 10, 256 << 10);

/// The total of a server, and its use.
pub(crate) struct Charges {
    total: u64,
    /// See [`Charges::guaranteed`].
    guaranteed: u64,
    used: AtomicU64,
    /// The part of `used` that counts against the total.
    counted: AtomicU64,
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
        let guaranteed = (total / 64).clamp(GUARANTEED_BYTES.0, GUARANTEED_BYTES.1);
        let none = || AtomicU64::new(0);
        Arc::new(Self { total, guaranteed, used: none(), counted: none(), sessions: none() })
    }

    /// The bytes of each session that do not count against the total.
    pub(super) fn guaranteed(&self) -> u64 {
        self.guaranteed
    }

    /// The bytes that each session may use, whatever the others use: the guaranteed ones, or its share of a quarter of
    /// the total if that is more. Otherwise one session could use the total and stop all others.
    pub(super) fn free(&self) -> u64 {
        (self.total / 4 / self.sessions.load(Ordering::Relaxed).max(1)).max(self.guaranteed)
    }

    /// The most that may count: a quarter beyond the total is left for admitted work that turned out larger.
    fn most(&self) -> u64 {
        self.total.saturating_add(self.total / 4)
    }

    fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
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

    /// Sets the bytes that the session uses; they are set also if it fails.
    /// `ResourceExhausted` if they grow and the total is exceeded by more than a quarter.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.held {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.held, bytes);
        self.change(before, bytes)
    }

    /// Like [`Charge::hold`], with the result of `exactly` in place of `bytes` if those would be too many.
    pub(super) fn hold_or_else(&mut self, bytes: u64, exactly: impl FnOnce() -> u64) -> Result<()> {
        let before = self.held;
        if self.hold(bytes).is_ok() {
            return Ok(());
        }
        // From the bytes before: growth is refused, by whichever count.
        let _ = self.hold(before);
        self.hold(exactly())
    }

    /// Like [`Charge::hold`]; if they are too many, the bytes before stay, so that the next growth is refused.
    pub(super) fn hold_unless_too_many(&mut self, bytes: u64) {
        let before = self.held;
        if self.hold(bytes).is_err() {
            let _ = self.hold(before);
        }
    }

    /// Like [`Charge::hold`], for the bytes of an incomplete message.
    pub(crate) fn receive(&mut self, bytes: u64) -> Result<()> {
        if bytes == self.unfinished {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.unfinished, bytes);
        self.change(before, bytes)
    }

    /// True if the session must not request more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.charges.free() && self.charges.counted() > self.charges.total
    }

    /// The bytes that the session may use in addition.
    pub(super) fn room(&self) -> u64 {
        let free = self.charges.free().saturating_sub(self.bytes());
        self.charges.most().saturating_sub(self.charges.counted()).max(free)
    }

    /// The error for a session that may use no more.
    pub(super) fn refusal(&self) -> Error {
        Error::ResourceExhausted {
            what: format!("a session with {} bytes of waiting inserts, draws and unreceived answers", self.bytes()),
            needed: self.charges.used(),
            budget: self.charges.total,
            hint: "keep fewer requests and inserts under connection, or raise the server's max_memory".to_owned(),
        }
    }

    /// The bytes that the session uses.
    pub(super) fn bytes(&self) -> u64 {
        self.held.saturating_add(self.unfinished)
    }

    fn change(&mut self, before: u64, now: u64) -> Result<()> {
        let Charges { guaranteed, used, counted, .. } = &*self.charges;
        let after = self.bytes();
        let counts = |bytes: u64| bytes.saturating_sub(*guaranteed);
        if now <= before {
            used.fetch_sub(before - now, Ordering::Relaxed);
            counted.fetch_sub(counts(after + (before - now)) - counts(after), Ordering::Relaxed);
            return Ok(());
        }
        used.fetch_add(now - before, Ordering::Relaxed);
        let more = counts(after) - counts(after - (now - before));
        let counted = counted.fetch_add(more, Ordering::Relaxed) + more;
        match counted > self.charges.most() && after > self.charges.free() {
            true => Err(self.refusal()),
            false => Ok(()),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes();
        self.charges.used.fetch_sub(bytes, Ordering::Relaxed);
        self.charges.counted.fetch_sub(bytes.saturating_sub(self.charges.guaranteed), Ordering::Relaxed);
        self.charges.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_session_that_fills_the_total_is_refused_more_and_the_others_keep_their_share() {
        let charges = Charges::new(80 * MIB);
        let own = charges.guaranteed();
        let (mut large, mut small) = (Charge::new(&charges), Charge::new(&charges));
        large.hold(own + 75 * MIB).unwrap();
        assert_eq!((large.room(), small.room(), large.is_full()), (25 * MIB, 25 * MIB, false));
        large.receive(20 * MIB).unwrap();
        assert!(large.is_full() && !small.is_full());
        assert_eq!((large.room(), small.room()), (5 * MIB, 10 * MIB));
        assert!(matches!(large.hold(95 * MIB), Err(Error::ResourceExhausted { budget, .. }) if budget == 80 * MIB));
        small.hold(10 * MIB).unwrap();
        assert!(small.hold(10 * MIB + 1).is_err());
        drop(large);
        assert_eq!(charges.used(), 10 * MIB + 1);
        assert_eq!(small.room(), 90 * MIB + own - 1);
        drop(small);
        assert_eq!((charges.used(), charges.counted()), (0, 0));
    }

    #[test]
    fn growth_beyond_the_total_is_refused_also_by_the_second_count() {
        let charges = Charges::new(80 * MIB);
        let most = charges.guaranteed() + 100 * MIB;
        let mut charge = Charge::new(&charges);
        charge.hold(most).unwrap();
        assert!(charge.hold_or_else(most + 2, || most + 1).is_err());
        assert_eq!(charges.used(), most + 1);
        assert!(charge.hold_or_else(most + 2, || most + 2).is_err());
        charge.hold_or_else(most + 9, || most + 2).unwrap();
        charge.hold_or_else(most + 1, || unreachable!("fewer bytes are not counted twice")).unwrap();
        charge.hold_or_else(most + 9, || 7).unwrap();
        assert_eq!(charges.used(), 7);
    }

    #[test]
    fn the_guaranteed_bytes_of_many_sessions_leave_the_total_to_others() {
        let charges = Charges::new(4 * MIB);
        let mut small: Vec<_> = (0..1000).map(|_| Charge::new(&charges)).collect();
        small.iter_mut().for_each(|charge| charge.hold(charges.guaranteed()).unwrap());
        let mut large = Charge::new(&charges);
        large.hold(5 * MIB).unwrap();
        assert!(small.iter().all(|charge| !charge.is_full()));
        small[0].receive(1).unwrap();
        assert!(small[0].receive(MIB).is_err());
        assert_eq!(charges.used(), 1000 * charges.guaranteed() + MIB + 5 * MIB);
    }
}
