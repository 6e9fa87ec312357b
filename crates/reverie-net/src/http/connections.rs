//! The open connections: the one that was silent for the longest time makes room for a new one.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio::time::sleep;

/// The time that the head of a connection's first request may take, a TLS handshake included.
pub(super) const FIRST: Duration = Duration::from_secs(10);

/// The open connections, up to a number.
pub(super) struct Connections {
    most: usize,
    /// Held for a look.
    open: Mutex<Vec<Arc<Activity>>>,
}

/// The time since which a connection is silent, and whether it is to end.
#[derive(Debug)]
pub(super) struct Activity {
    /// Held for a look.
    state: Mutex<ActivityState>,
    eviction: Notify,
}

#[derive(Debug)]
struct ActivityState {
    /// The head of a request has arrived.
    has_asked: bool,
    /// A request has no complete response yet.
    is_busy: bool,
    /// The time when it was opened, or its last response was complete.
    since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        let state = ActivityState { has_asked: false, is_busy: false, since: Instant::now() };
        Self { state: Mutex::new(state), eviction: Notify::new() }
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins; it ends with the result, which is to live as long as the response.
    pub(super) fn begin(self: &Arc<Self>) -> RequestInProgress {
        let mut state = self.state();
        (state.has_asked, state.is_busy) = (true, true);
        drop(state);
        RequestInProgress(Arc::clone(self))
    }

    /// The order of eviction: connections that never made a request first, then the longest silent; `None` during a
    /// request.
    fn order(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        (!state.is_busy).then_some((state.has_asked, state.since))
    }
}

/// A request in progress.
pub(super) struct RequestInProgress(Arc<Activity>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_busy, state.since) = (false, Instant::now());
    }
}

/// A response during which its connection is not silent.
pub(super) struct HeldBody {
    pub(super) body: Body,
    pub(super) _busy: RequestInProgress,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's place, until it is dropped.
pub(super) struct OpenConnection {
    connections: Arc<Connections>,
    pub(super) activity: Arc<Activity>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Activity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, and true if another one has to end for it; `None` if all are in requests.
    pub(super) fn admit(self: &Arc<Self>) -> Option<(OpenConnection, bool)> {
        let mut open = self.open();
        let is_full = open.len() >= self.most;
        if is_full {
            let silent = open.iter().enumerate().filter_map(|(at, activity)| Some((activity.order()?, at))).min();
            let (_, at) = silent?;
            open.swap_remove(at).eviction.notify_one();
        }
        let activity = Arc::<Activity>::default();
        open.push(Arc::clone(&activity));
        Some((OpenConnection { connections: Arc::clone(self), activity }, is_full))
    }
}

impl OpenConnection {
    /// Waits until the connection has to end: for another one, or because it makes no first request.
    pub(super) async fn over(&self) {
        let no_request = async {
            sleep(FIRST).await;
            if self.activity.state().has_asked {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.activity.eviction.notified() => {}
            () = no_request => {}
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.open().retain(|other| !Arc::ptr_eq(other, &self.activity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_longest_silent_connection_makes_room_and_one_in_a_request_never_does() {
        let connections = Connections::new(3);
        let admit = || connections.admit().map(|(place, _)| place);
        let is_over = |place: &OpenConnection| place.over().now_or_never().is_some();
        let places: Vec<OpenConnection> = (0..3).map(|_| admit().unwrap()).collect();
        let busy = places[0].activity.begin();
        drop(places[1].activity.begin());
        advance(SECOND).await;
        let fourth = admit().unwrap();
        assert_eq!([0, 1, 2].map(|at| is_over(&places[at])), [false, false, true], "it never made a request");
        let _second = fourth.activity.begin();
        let fifth = admit().unwrap();
        assert_eq!([0, 1].map(|at| is_over(&places[at])), [false, true], "its request is answered");
        let _third = fifth.activity.begin();
        assert!(admit().is_none(), "all are in requests");
        drop(busy);
        assert!(admit().is_some() && is_over(&places[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_first_request_ends_early_and_a_place_is_free_when_it_is_dropped() {
        let connections = Connections::new(2);
        let [silent, kept] = [(); 2].map(|()| connections.admit().unwrap().0);
        drop(kept.activity.begin());
        let since = Instant::now();
        silent.over().await;
        assert_eq!(since.elapsed(), FIRST);
        assert!(tokio::time::timeout(10 * FIRST, kept.over()).await.is_err(), "between requests it may be silent");
        drop(silent);
        assert!(connections.admit().is_some_and(|(_, evicts)| !evicts));
    }
}
