//! The episodes of a session.

use reverie_core::append::next_episode;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Episodes that are remembered; one that comes back later still counts as another.
const KEPT: usize = 1 << 16;

/// The episodes of a session by the numbers that its client gives them: kept across its connections.
#[derive(Debug, Default)]
pub struct Episodes {
    /// Guards the numbers. Under it a look-up and an insertion.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<u32, u32>,
    order: VecDeque<u32>,
}

impl Episodes {
    /// This server's number for the client's; 0, a step inserted alone, stays 0.
    pub(super) fn number(&self, episode: u32) -> u32 {
        if episode == 0 {
            return 0;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known.numbers.get(&episode) {
            return *number;
        }
        if known.order.len() >= KEPT {
            let oldest = known.order.pop_front().expect("it is full");
            known.numbers.remove(&oldest);
        }
        let number = next_episode();
        known.numbers.insert(episode, number);
        known.order.push_back(episode);
        number
    }
}
