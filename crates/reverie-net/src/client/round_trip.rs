//! The round trip to the server.

use std::time::Duration;
use tokio::time::Instant;

/// The shortest round trip on a connection: from an insert to its confirmation.
///
/// Only the shortest of many is the network's: others include the wait for a busy server, a limiter or a queue. It is
/// kept for a connection; a route that becomes longer is noticed when the client reconnects.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    shortest: Option<Duration>,
    /// The insert that is being measured, one at a time, and when it was sent.
    watched: Option<(u64, Instant)>,
}

impl RoundTrip {
    /// The round trip of a connection whose first request was answered after this time.
    pub(super) fn of(first: Duration) -> Self {
        Self { shortest: Some(first), watched: None }
    }

    /// Notes that a message was sent, with the number of its first insert; 0: cells only, which are not confirmed.
    pub(super) fn sent(&mut self, first_id: u64, now: Instant) {
        if first_id != 0 {
            self.watched.get_or_insert((first_id, now));
        }
    }

    /// Notes that the inserts below `below` are confirmed; returns the shortest round trip if it became shorter.
    pub(super) fn confirmed(&mut self, below: u64, now: Instant) -> Option<Duration> {
        let (_, since) = self.watched.take_if(|(id, _)| *id < below)?;
        let took = now - since;
        let shorter = self.shortest.is_none_or(|shortest| took < shortest);
        shorter.then(|| *self.shortest.insert(took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_all_round_trips_counts_and_what_waited_does_not() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut trip = RoundTrip::of(Duration::from_millis(50));
        trip.sent(1, at(0));
        // Sent while the first is measured: confirmed with it.
        trip.sent(2, at(5));
        assert_eq!(trip.confirmed(1, at(6)), None, "that was an earlier one");
        assert_eq!(trip.confirmed(3, at(40)), Some(Duration::from_millis(40)));
        trip.sent(3, at(100));
        assert_eq!(trip.confirmed(4, at(900)), None, "it waited for its table");
        // Cells that are sent before their insert: the answer to an earlier insert does not confirm them.
        trip.sent(0, at(950));
        assert_eq!(trip.confirmed(4, at(951)), None);
        trip.sent(4, at(1000));
        assert_eq!(trip.confirmed(9, at(1020)), Some(Duration::from_millis(20)));
        assert_eq!(trip.confirmed(9, at(1021)), None, "nothing is on its way");
    }
}
