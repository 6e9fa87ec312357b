//! Checkpoints that clients ask for: one is taken at a time, and the next is shared by all who ask meanwhile.

use reverie_core::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Takes a checkpoint; gives its path.
pub(super) type Take = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// What the requests for checkpoints share.
pub(super) struct Checkpoints {
    take: Take,
    /// Guards the requests: held for a push or a move.
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    /// The requests that the next checkpoint answers.
    next: Vec<oneshot::Sender<Result<String>>>,
    /// A task takes checkpoints, and looks for requests before it ends.
    running: bool,
}

impl Checkpoints {
    pub(super) fn new(take: Take) -> Arc<Self> {
        Arc::new(Self { take, asked: Mutex::default() })
    }

    /// Asks for a checkpoint that holds all that is in the tables now. One that is being taken already may not, since
    /// its cut was made before: the request joins the next one, with all others that come before that begins. Needs a
    /// runtime. The checkpoint is taken also where its path is not waited for.
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
            // Some may have stopped waiting.
            waiting.into_iter().for_each(|sender| drop(sender.send(path.clone())));
        }
    }
}
