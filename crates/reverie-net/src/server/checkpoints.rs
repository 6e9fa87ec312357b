//! Checkpoints that clients request: one is taken at a time, and all requests made meanwhile share the next one.

use reverie_core::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Takes a checkpoint and returns its path.
pub(super) type CheckpointCallback = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// The state that requests for checkpoints share.
pub(super) struct Checkpoints {
    take: CheckpointCallback,
    /// Guards the requests: held for a push or a move.
    asked: Mutex<CheckpointRequests>,
}

#[derive(Default)]
struct CheckpointRequests {
    /// The requests that the next checkpoint answers.
    next: Vec<oneshot::Sender<Result<String>>>,
    /// True while a task takes checkpoints; it looks for requests before it ends.
    running: bool,
}

impl Checkpoints {
    pub(super) fn new(take: CheckpointCallback) -> Arc<Self> {
        Arc::new(Self { take, asked: Mutex::default() })
    }

    /// Requests a checkpoint that holds everything that is in the tables now.
    /// A checkpoint that is already being taken may not, because its cut was made before: the request joins the next
    /// one, with all others that come before that one begins. Needs a runtime. The checkpoint is taken even if the
    /// returned future is dropped.
    pub(super) fn ask(self: &Arc<Self>) -> impl Future<Output = Result<String>> + Send + 'static {
        let (sender, path) = oneshot::channel();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.next.push(sender);
        if !std::mem::replace(&mut asked.running, true) {
            tokio::spawn(Arc::clone(self).run());
        }
        async { path.await.unwrap_or_else(|_| Err(Error::Unavailable("the server stops".to_owned()))) }
    }

    async fn run(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.running = !asked.next.is_empty();
                if !asked.running {
                    return;
                }
                std::mem::take(&mut asked.next)
            };
            let take = Arc::clone(&self.take);
            let taken = tokio::task::spawn_blocking(move || take()).await;
            let path = taken.unwrap_or_else(|panic| Err(Error::Unavailable(format!("the checkpoint: {panic}"))));
            // Some callers may no longer wait.
            waiting.into_iter().for_each(|sender| drop(sender.send(path.clone())));
        }
    }
}
