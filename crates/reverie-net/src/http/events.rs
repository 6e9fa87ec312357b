//! The figures of a server once a second, as server-sent events.

use super::figures;
use super::watched_server::WatchedServer;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// Streams that are open at a time.
pub(super) const MOST_STREAMS: usize = 16;

/// The streams of events of a server. A reader that is late gets the newest event only.
pub(super) struct Events {
    watched: Arc<WatchedServer>,
    newest: watch::Sender<Bytes>,
    places: Arc<Semaphore>,
}

impl Events {
    pub(super) fn new(watched: Arc<WatchedServer>) -> Arc<Self> {
        let (newest, places) = (watch::Sender::new(Bytes::new()), Arc::new(Semaphore::new(MOST_STREAMS)));
        Arc::new(Self { watched, newest, places })
    }

    /// Makes the events while the streams exist. It computes nothing while no stream is open.
    pub(super) async fn run(events: Weak<Self>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let Some(events) = events.upgrade() else { return };
            if events.newest.receiver_count() > 0 {
                events.newest.send_replace(events.event());
            }
        }
    }

    fn event(&self) -> Bytes {
        // JSON has no line breaks, so it is one line of data.
        let (info, why) = (figures::info(&self.watched), figures::why(&self.watched));
        let figures = json!({ "info": info, "why": why, "run": figures::run(&self.watched) });
        format!("event: figures\ndata: {figures}\n\n").into()
    }

    /// The body of a new stream, which begins with the present figures; `None` if too many are open.
    pub(super) fn stream(&self) -> Option<Body> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (first, newest) = (Some(self.event()), self.newest.subscribe());
        let next = |(first, mut newest, place): (Option<Bytes>, watch::Receiver<Bytes>, OwnedSemaphorePermit)| async {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (None, newest, place)));
            }
            newest.changed().await.ok()?;
            let event = newest.borrow_and_update().clone();
            Some((Ok(event), (None, newest, place)))
        };
        Some(Body::from_stream(unfold((first, newest, place), next)))
    }
}
