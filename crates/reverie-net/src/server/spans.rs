//! Spans of traced requests: from their arrival to their response, kept until they are exported.
//!
//! Nothing is noted unless an exporter asks for spans, and only of requests whose trace is recorded.

use super::latencies::RequestTransport;
use crate::proto::error_detail::Kind;
use crate::proto::{ErrorDetail, TracedRequest};
use crate::trace::TraceContext;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Spans of requests without a response, of all sessions, at most.
pub const MOST_OPEN: usize = 4096;
/// Finished spans that wait for the exporter, at most.
pub const MOST_FINISHED: usize = 4096;
/// Bytes of a text of a span, at most.
const TEXT_BYTES: usize = 512;

/// The time for which a request waited, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// `limiter`, `bytes`, `memory`, `journal`, `items` or `turn`.
    pub reason: &'static str,
    /// The reason as a sentence, as it was when the wait began.
    pub text: String,
    /// The time waited.
    pub took: Duration,
}

/// A request that has its response, or will get none.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace, and the client's span.
    pub context: TraceContext,
    /// The kind of request.
    pub verb: &'static str,
    /// The names of the tables, with commas; empty for requests that name no table of the server.
    pub tables: String,
    /// `grpc` or `shared-memory`.
    pub transport: &'static str,
    /// The arrival.
    pub began: Instant,
    /// The response.
    pub ended: Instant,
    /// `None` if it waited for nothing.
    pub wait: Option<Wait>,
    /// The kind of the error, and its text.
    pub error: Option<(&'static str, String)>,
}

/// The counts of spans since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCounts {
    /// Finished and kept for the exporter.
    pub noted: u64,
    /// Left out, as too many were open or kept, or the exporter failed.
    pub dropped: u64,
    /// Requests with an invalid trace context, which have no span.
    pub invalid: u64,
}

/// The spans of a server.
#[derive(Debug, Default)]
pub struct Spans {
    /// From before the server listens: clients of its predecessor send their requests again in its first moment.
    on: bool,
    open: AtomicUsize,
    /// Guards the finished spans, the oldest first. A span is only moved under it.
    finished: Mutex<VecDeque<Span>>,
    noted: AtomicU64,
    dropped: AtomicU64,
    invalid: AtomicU64,
}

impl Spans {
    /// Spans that are noted, or not.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Takes the finished spans, the oldest first.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.finished()).into()
    }

    /// Counts spans that were taken and could not be exported.
    pub fn not_exported(&self, spans: u64) {
        self.dropped.fetch_add(spans, Relaxed);
    }

    /// `None` if no spans are noted.
    pub fn counts(&self) -> Option<SpanCounts> {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let counts = SpanCounts { noted: of(&self.noted), dropped: of(&self.dropped), invalid: of(&self.invalid) };
        self.on.then_some(counts)
    }

    fn finished(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if one more span may be open.
    fn may_open(&self) -> bool {
        let may = self.open.fetch_add(1, Relaxed) < MOST_OPEN;
        if !may {
            self.open.fetch_sub(1, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
        may
    }

    /// Keeps a span that was open. Beyond the limit, the oldest one is dropped.
    fn finish(&self, span: Span) {
        self.open.fetch_sub(1, Relaxed);
        self.noted.fetch_add(1, Relaxed);
        let mut finished = self.finished();
        let oldest = if finished.len() < MOST_FINISHED { None } else { finished.pop_front() };
        finished.push_back(span);
        drop(finished);
        self.dropped.fetch_add(u64::from(oldest.is_some()), Relaxed);
    }
}

/// The open spans of a session. When it is dropped, they end with an error.
pub(super) struct OpenSpans {
    spans: Arc<Spans>,
    /// The traced requests of the message that is being handled, in the order of their numbers.
    announced: VecDeque<(u64, TraceContext)>,
    open: HashMap<u64, OpenSpan>,
}

struct OpenSpan {
    context: TraceContext,
    verb: &'static str,
    tables: String,
    transport: RequestTransport,
    began: Instant,
    /// Since when it waits, until when if it goes on, for what, and that as a sentence.
    wait: Option<(Instant, Option<Instant>, &'static str, String)>,
}

impl OpenSpans {
    pub(super) fn new(spans: &Arc<Spans>) -> Self {
        Self { spans: Arc::clone(spans), announced: VecDeque::new(), open: HashMap::new() }
    }

    /// Takes note of the traced requests of a message.
    pub(super) fn announce(&mut self, traced: &[TracedRequest]) {
        if !self.spans.on {
            return;
        }
        for traced in traced {
            match TraceContext::decode(traced) {
                None => _ = self.spans.invalid.fetch_add(1, Relaxed),
                Some(context) if context.sampled => self.announced.push_back((traced.id, context)),
                Some(_) => {}
            }
        }
    }

    /// Forgets what the message that was handled has announced and does not have: a peer could make many sessions keep
    /// it.
    pub(super) fn handled(&mut self) {
        if !self.announced.is_empty() {
            self.announced = VecDeque::new();
        }
    }

    /// True if the message that is being handled has traced requests, or an earlier one has some without a response.
    pub(super) fn is_idle(&self) -> bool {
        self.announced.is_empty() && self.open.is_empty()
    }

    /// Opens the span of a request that was announced.
    pub(super) fn begin(
        &mut self,
        id: u64,
        verb: &'static str,
        transport: RequestTransport,
        tables: impl FnOnce() -> String,
    ) {
        while self.announced.front().is_some_and(|(other, _)| *other < id) {
            self.announced.pop_front();
        }
        let Some(&(_, context)) = self.announced.front().filter(|(other, _)| *other == id) else { return };
        self.announced.pop_front();
        if !self.open.contains_key(&id) && self.spans.may_open() {
            let open =
                OpenSpan { context, verb, tables: shortened(tables()), transport, began: Instant::now(), wait: None };
            self.open.insert(id, open);
        }
    }

    /// True if the request has a span.
    pub(super) fn has(&self, id: u64) -> bool {
        self.open.contains_key(&id)
    }

    /// Notes that a request waits from now on.
    pub(super) fn waits(&mut self, id: u64, (reason, text): (&'static str, String)) {
        if let Some(open) = self.open.get_mut(&id) {
            open.wait = Some((Instant::now(), None, reason, shortened(text)));
        }
    }

    /// Notes that a request has what it waited for, or waits no longer.
    pub(super) fn end_wait(&mut self, id: u64) {
        if let Some((_, until, ..)) = self.open.get_mut(&id).and_then(|open| open.wait.as_mut()) {
            *until = Some(Instant::now());
        }
    }

    /// Ends the spans of requests with consecutive numbers that have their response.
    pub(super) fn end_all(&mut self, first: u64, count: u64) {
        if !self.open.is_empty() {
            (first..first.saturating_add(count)).for_each(|id| self.end(id, None));
        }
    }

    /// Ends the span of a request, with the error that it is answered with.
    pub(super) fn end(&mut self, id: u64, error: Option<&ErrorDetail>) {
        // Every response passes here: without traces nothing is hashed.
        if self.open.is_empty() {
            return;
        }
        if let Some(open) = self.open.remove(&id) {
            let error = error.map(|detail| {
                let text = crate::convert::error::decode(detail.clone()).to_string();
                (detail.kind.as_ref().map_or("unknown", name), text)
            });
            self.spans.finish(open.ended(error));
        }
    }

    /// Ends the span of a request that gets no response.
    pub(super) fn abandon(&mut self, id: u64, why: &str) {
        if let Some(open) = self.open.remove(&id) {
            self.spans.finish(open.ended(Some(("withdrawn", why.to_owned()))));
        }
    }
}

impl Drop for OpenSpans {
    fn drop(&mut self) {
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().for_each(|id| self.abandon(id, "the client's session ended first"));
    }
}

impl OpenSpan {
    fn ended(self, error: Option<(&'static str, String)>) -> Span {
        let Self { context, verb, tables, transport, began, wait } = self;
        let ended = Instant::now();
        let wait = wait.map(|(since, until, reason, text)| {
            let took = until.unwrap_or(ended) - since;
            Wait { reason, text, took }
        });
        let error = error.map(|(kind, text)| (kind, shortened(text)));
        Span { context, verb, tables, transport: transport.name(), began, ended, wait, error }
    }
}

fn shortened(mut text: String) -> String {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.shrink_to_fit();
    text
}

fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::InvalidArgument(_) => "invalid_argument",
        Kind::UnknownTable(_) => "unknown_table",
        Kind::Signature(_) => "signature",
        Kind::Ragged(_) => "ragged",
        Kind::ResourceExhausted(_) => "resource_exhausted",
        Kind::OutOfMemory(_) => "out_of_memory",
        Kind::Closed(_) => "closed",
        Kind::UnknownKey(_) => "unknown_key",
        Kind::Damaged(_) => "damaged",
        Kind::Deadline(_) => "deadline",
        Kind::Violation(_) => "violation",
        Kind::Unauthenticated(_) => "unauthenticated",
        Kind::Unavailable(_) => "unavailable",
        Kind::Incompatible(_) => "incompatible",
        Kind::Internal(_) => "internal",
        Kind::Storage(_) => "storage",
        Kind::DamagedFile(_) => "damaged_file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(id: u64) -> TracedRequest {
        TracedRequest { id, trace_high: 1, trace_low: id, parent: 5, sampled: true }
    }

    fn on() -> (Arc<Spans>, OpenSpans) {
        let spans = Arc::new(Spans::new(true));
        let open = OpenSpans::new(&spans);
        (spans, open)
    }

    fn begin(open: &mut OpenSpans, id: u64) {
        open.begin(id, "insert", RequestTransport::Grpc, || "t".to_owned());
    }

    #[tokio::test]
    async fn a_span_has_the_wait_and_the_error_of_its_request() {
        let (spans, mut open) = on();
        open.announce(&[traced(3), traced(5)]);
        [3, 4, 5].into_iter().for_each(|id| begin(&mut open, id));
        open.waits(3, ("limiter", "x".repeat(TEXT_BYTES - 1) + "é"));
        open.end_wait(3);
        open.end(3, Some(&crate::convert::error::encode(&reverie_core::Error::Deadline("late".to_owned()))));
        assert!(open.has(5) && !open.has(4));
        drop(open);
        let taken = spans.take();
        assert_eq!(taken.len(), 2);
        let (kind, text) = taken[0].error.clone().unwrap();
        assert!(kind == "deadline" && text.contains("late"), "{text}");
        let wait = taken[0].wait.as_ref().unwrap();
        assert_eq!((wait.reason, &wait.text[..]), ("limiter", &"x".repeat(TEXT_BYTES - 1)[..]));
        assert_eq!((taken[1].error.as_ref().unwrap().0, &taken[1].wait), ("withdrawn", &None));
        assert_eq!((taken[1].context.trace, taken[1].context.parent), (1 << 64 | 5, 5));
        assert_eq!(spans.counts(), Some(SpanCounts { noted: 2, dropped: 0, invalid: 0 }));
    }

    #[tokio::test]
    async fn open_and_finished_spans_are_bounded_and_the_oldest_is_dropped() {
        let (spans, mut open) = on();
        let all: Vec<_> = (1..=MOST_OPEN as u64 + 2).map(traced).collect();
        open.announce(&all);
        (1..=MOST_OPEN as u64 + 2).for_each(|id| begin(&mut open, id));
        assert_eq!((open.open.len(), spans.counts().unwrap().dropped), (MOST_OPEN, 2));
        open.end_all(1, MOST_OPEN as u64);
        open.announce(&[traced(9000)]);
        begin(&mut open, 9000);
        open.end(9000, None);
        let taken = spans.take();
        let numbers = |at: usize| taken[at].context.trace as u64;
        assert_eq!((taken.len(), numbers(0), numbers(MOST_FINISHED - 1)), (MOST_FINISHED, 2, 9000));
        assert_eq!(spans.counts().unwrap().dropped, 3);
        assert!(spans.take().is_empty());
    }

    #[tokio::test]
    async fn contexts_that_are_invalid_or_not_sampled_open_no_span_and_neither_does_a_server_without_an_exporter() {
        let (spans, mut open) = on();
        open.announce(&[
            TracedRequest { parent: 0, ..traced(1) },
            TracedRequest { sampled: false, ..traced(2) },
            TracedRequest { trace_high: 0, trace_low: 0, ..traced(3) },
        ]);
        (1..4).for_each(|id| begin(&mut open, id));
        assert!(open.is_idle());
        assert_eq!(spans.counts(), Some(SpanCounts { noted: 0, dropped: 0, invalid: 2 }));
        let off = Arc::<Spans>::default();
        let mut open = OpenSpans::new(&off);
        open.announce(&[traced(1)]);
        begin(&mut open, 1);
        assert!(open.is_idle() && off.counts().is_none());
    }

    #[tokio::test]
    async fn traces_that_a_message_announces_and_does_not_have_are_forgotten_with_it() {
        let (_, mut open) = on();
        open.announce(&[traced(1), traced(7)]);
        begin(&mut open, 1);
        open.handled();
        assert_eq!(open.announced.capacity(), 0);
        begin(&mut open, 7);
        assert!(open.has(1) && !open.has(7));
    }
}
