//! The memory that the session uses, as it is counted.

use super::Session;
use reverie_core::{Error, Result};

impl Session {
    /// Counts the bytes that the session uses, also for its figures. `ResourceExhausted` if they are too many.
    pub(super) fn update_memory(&mut self) -> Result<()> {
        let counted = self.count();
        let lent = self.link.as_ref().map_or(0, |link| link.connection.lent_bytes());
        self.figures.holds(self.charge.bytes() + lent, self.waiting.len() + self.ready.len());
        counted
    }

    fn count(&mut self) -> Result<()> {
        if self.inserts.waiting() == 0 {
            self.released.clear();
            self.link.iter_mut().for_each(|link| link.decoder.nothing_waits());
        }
        let own = self.own_bytes();
        let Some(link) = &mut self.link else { return self.charge.hold(own + self.released.bytes()) };
        // The first count may include chunks that are in tables by now.
        self.charge.hold_or_else(own + link.decoder.held_bytes(), || own + link.decoder.recount())
    }

    /// If the session seems to use too much to request more, counts again without chunks that are in tables by now.
    pub(super) fn recount_if_full(&mut self) {
        let own = self.own_bytes();
        if self.charge.is_full()
            && let Some(link) = &mut self.link
        {
            // If it is too much, the next event ends the session.
            self.charge.hold_unless_too_many(own + link.decoder.recount_paced());
        }
    }

    /// The bytes without chunks.
    fn own_bytes(&self) -> u64 {
        self.outcomes.size_bytes() + self.inserts.held_bytes() + self.episodes.size_bytes() + self.requested_bytes
    }

    /// Ends a session that uses too much, and drops all that it holds.
    pub(super) fn end_session(&mut self, error: Error) -> bool {
        self.send_goodbye(error, false);
        if let Some(id) = self.id.filter(|_| !self.is_empty()) {
            self.shared.forget_outcomes(id);
        }
        false
    }
}
