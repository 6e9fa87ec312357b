//! Searches of items: a few run at a time, a few wait for their turn, and none starts after its reader left.

use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Searches at a time.
pub(super) const MOST_AT_ONCE: usize = 2;
/// Searches that wait for their turn.
pub(super) const MOST_WAITING: usize = 32;

/// Searches of items: a few run at a time, a few wait for their turn, and none starts after its reader left.
pub(super) struct Searches {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Searches {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { turns: places(MOST_AT_ONCE), places: places(MOST_AT_ONCE + MOST_WAITING) }
    }
}

impl Searches {
    /// The outcome of a search in its turn, on a thread that may block; `None` if too many wait.
    ///
    /// A search whose reader leaves while it waits is not made. One that has begun keeps its turn until it ends.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        search: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Result<T, JoinError>> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let searched = spawn_blocking(move || {
            let _held = (place, turn);
            search()
        });
        Some(searched.await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::yield_now;

    #[tokio::test]
    async fn a_search_whose_reader_left_keeps_its_turn_and_one_more_than_may_wait_is_refused() {
        let searches = Arc::new(Searches::default());
        let (begun, mut begins) = unbounded_channel();
        let mut gates = Vec::new();
        let readers: Vec<_> = (0..MOST_AT_ONCE)
            .map(|_| {
                let (searches, begun, (gate, opened)) = (Arc::clone(&searches), begun.clone(), mpsc::channel::<()>());
                gates.push(gate);
                let search = move || _ = (begun.send(()), opened.recv());
                tokio::spawn(async move { searches.run(search).await.is_some() })
            })
            .collect();
        for _ in &readers {
            begins.recv().await.unwrap();
        }
        for reader in readers {
            reader.abort();
            assert!(reader.await.unwrap_err().is_cancelled());
        }
        let waiting: Vec<_> = (0..MOST_WAITING)
            .map(|number| {
                let searches = Arc::clone(&searches);
                tokio::spawn(async move { searches.run(move || number).await })
            })
            .collect();
        while searches.places.available_permits() > 0 {
            assert!(!waiting[0].is_finished(), "it searched in addition to the others");
            yield_now().await;
        }
        assert!(searches.run(|| ()).await.is_none());
        // A reader that leaves while it waits makes room.
        waiting[0].abort();
        while searches.places.available_permits() == 0 {
            yield_now().await;
        }
        drop(gates);
        for (number, searched) in waiting.into_iter().enumerate().skip(1) {
            assert_eq!(searched.await.unwrap().unwrap().unwrap(), number);
        }
    }
}
