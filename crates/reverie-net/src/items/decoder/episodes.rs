//! The episodes and the streams of steps of a session.

use reverie_core::append::{next_episode, next_stream};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that are remembered; an older one that is used again gets a new number.
const KEPT: usize = 1 << 16;

/// The episodes and streams of a session by its client's numbers: kept across its connections.
#[derive(Debug, Default)]
pub struct Episodes {
    episodes: Mutex<EpisodeNumbers>,
    streams: Mutex<EpisodeNumbers>,
}

/// The lock is held for a lookup and an insertion.
#[derive(Debug, Default)]
struct EpisodeNumbers {
    numbers: HashMap<u32, u32>,
    order: VecDeque<u32>,
}

impl Episodes {
    /// This server's number for the client's episode; 0 (a single step) stays 0.
    pub(super) fn episode(&self, episode: u32) -> u32 {
        number(&self.episodes, episode, next_episode)
    }

    /// Like [`Episodes::episode`], for a stream; 0 (unknown) stays 0.
    pub(super) fn stream(&self, stream: u32) -> u32 {
        number(&self.streams, stream, next_stream)
    }

    /// The memory of the numbers.
    pub fn size_bytes(&self) -> u64 {
        [&self.episodes, &self.streams].map(|known| lock(known).size_bytes()).iter().sum()
    }
}

impl EpisodeNumbers {
    fn size_bytes(&self) -> u64 {
        // A map has eight places for seven entries at most, and a byte for each place.
        let entry = size_of::<(u32, u32)>() + 1;
        (self.numbers.capacity() / 7 * 8 * entry + self.order.capacity() * size_of::<u32>()) as u64
    }
}

fn lock(known: &Mutex<EpisodeNumbers>) -> MutexGuard<'_, EpisodeNumbers> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(known: &Mutex<EpisodeNumbers>, theirs: u32, next: fn() -> u32) -> u32 {
    if theirs == 0 {
        return 0;
    }
    let mut known = lock(known);
    if let Some(number) = known.numbers.get(&theirs) {
        return *number;
    }
    if known.order.len() >= KEPT {
        let oldest = known.order.pop_front().expect("it is full");
        known.numbers.remove(&oldest);
    }
    let number = next();
    known.numbers.insert(theirs, number);
    known.order.push_back(theirs);
    number
}
