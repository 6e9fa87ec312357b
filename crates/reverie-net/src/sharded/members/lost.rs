//! Servers that cannot be reached: how the client notices it, and asks them until they are back.

use super::super::calls::is_lost;
use super::Members;
use reverie_core::Error;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The time between two attempts to reach a lost server: at first, and at most.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(100);
pub(in crate::sharded) const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);

impl Members {
    /// Takes note of a request's error: leaves a lost server out, and checks one that did not answer in time.
    ///
    /// False for any other error, which is the request's.
    pub(in crate::sharded) fn missed(self: &Arc<Self>, shard: usize, error: &Error) -> bool {
        match error {
            error if is_lost(error) || self.lacks(shard, error) => {
                self.lose(shard, error);
                true
            }
            Error::Deadline(_) => {
                self.doubt(shard);
                false
            }
            _ => false,
        }
    }

    /// Marks a server as lost: warns once, unless it was refused, and asks it until it answers.
    pub(in crate::sharded) fn lose(self: &Arc<Self>, shard: usize, error: &Error) {
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        // First, so that no response from before brings it back.
        let (was_lost, is_refused) = {
            let known = &mut self.state()[shard];
            let was_lost = known.is_lost;
            known.is_lost |= !is_closed;
            (was_lost, known.refusal.is_some())
        };
        self.watchers().iter().for_each(|watcher| watcher.lost(shard));
        if was_lost || is_closed {
            return;
        }
        let (left, all) = (self.present().len(), self.len());
        if !is_refused {
            tracing::warn!("{} is lost, {left} of {all} remain: {error}", self.name(shard));
        }
        let members = Arc::downgrade(self);
        self.runtime.spawn(async move { look(&members, shard).await });
    }

    /// After a request that timed out: asks the server whether it can be reached, within its patience.
    fn doubt(self: &Arc<Self>, shard: usize) {
        {
            let known = &mut self.state()[shard];
            if known.is_lost || known.is_doubted || self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            known.is_doubted = true;
        }
        let (members, replay) = (Arc::downgrade(self), Arc::clone(self.replay(shard)));
        self.runtime.spawn(async move {
            let (asked, since) = (replay.info(), Instant::now());
            let answered = match replay.patience() {
                Some(patience) => tokio::time::timeout(patience, asked).await,
                None => Ok(asked.await),
            };
            let answered =
                answered.unwrap_or_else(|_| Err(Error::Unavailable(replay.no_response_reason(since.elapsed()))));
            let Some(members) = members.upgrade() else { return };
            members.state()[shard].is_doubted = false;
            if let Err(error) = answered
                && is_lost(&error)
            {
                members.lose(shard, &error);
            }
        });
    }
}

/// Asks a lost server until it is back.
async fn look(members: &Weak<Members>, shard: usize) {
    let mut pause = MIN_RETRY_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(MAX_RETRY_PAUSE);
        let Some(found) = members.upgrade() else { return };
        if found.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let (restarts, asked) = (found.replay(shard).restarts(), found.replay(shard).info());
        let Ok(Ok(info)) = tokio::time::timeout(MAX_RETRY_PAUSE, asked).await else { continue };
        if found.admit_again(shard, &info, restarts).is_err() {
            // It may be started again with the tables of the others.
            continue;
        }
        // From here on a failure makes it lost again, with another task that asks it.
        found.state()[shard].is_lost = false;
        for watcher in found.watchers() {
            if let Err(error) = watcher.join(shard).await {
                return found.lose(shard, &error);
            }
        }
        tracing::warn!("{} is back", found.name(shard));
        return;
    }
}
