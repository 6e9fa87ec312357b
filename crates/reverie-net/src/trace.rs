//! The trace that a request belongs to, as W3C's `traceparent` names it.

use crate::proto::{Insert, TracedRequest};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;

/// The ids of a trace and of the span that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace. Not 0.
    pub trace: u128,
    /// The span that makes the request. Not 0.
    pub parent: u64,
    /// The trace is recorded.
    pub sampled: bool,
}

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
    static ANSWERED: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

impl TraceContext {
    /// The trace of the requests that this thread makes now.
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Sets the trace of the requests that this thread makes from now on; returns the one before.
    pub fn set_current(context: Option<Self>) -> Option<Self> {
        CURRENT.replace(context)
    }

    /// Runs `work`, whose requests belong to this trace.
    pub fn within<T>(context: Option<Self>, work: impl FnOnce() -> T) -> T {
        struct TraceContextGuard(Option<TraceContext>);
        impl Drop for TraceContextGuard {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _before = TraceContextGuard(CURRENT.replace(context));
        work()
    }

    /// A future whose requests belong to this trace, on whichever thread it is polled.
    pub(crate) async fn within_future<F: Future>(context: Option<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|task| Self::within(context, || future.as_mut().poll(task))).await
    }

    /// Notes the trace of the request whose batch this thread takes.
    pub(crate) fn set_answered(context: Option<Self>) {
        ANSWERED.set(context);
    }

    /// The trace of the request for the last batch that this thread took from an iterator. Only the first call has it.
    pub fn take_answered() -> Option<Self> {
        ANSWERED.take()
    }

    /// `None` for an invalid one: an id of zeros.
    pub(crate) fn decode(traced: &TracedRequest) -> Option<Self> {
        let &TracedRequest { trace_high, trace_low, parent, sampled, .. } = traced;
        let trace = u128::from(trace_high) << 64 | u128::from(trace_low);
        (trace != 0 && parent != 0).then_some(Self { trace, parent, sampled })
    }

    pub(crate) fn encode(&self, id: u64) -> TracedRequest {
        let &Self { trace, parent, sampled } = self;
        TracedRequest { id, trace_high: (trace >> 64) as u64, trace_low: trace as u64, parent, sampled }
    }
}

/// Traced requests that are not sent yet, and that were sent, at most of each.
const MOST: usize = 4096;

/// The traces of a client's requests, by their numbers.
#[derive(Default)]
pub(crate) struct RequestTraces {
    unsent: BTreeMap<u64, TraceContext>,
    /// The latest that were sent on this connection: those without an answer are sent again on another.
    sent: BTreeMap<u64, TraceContext>,
}

/// Adds a request. Beyond the limit the oldest is dropped.
fn add(to: &mut BTreeMap<u64, TraceContext>, id: u64, context: TraceContext) {
    to.insert(id, context);
    if to.len() > MOST {
        to.pop_first();
    }
}

impl RequestTraces {
    /// Adds a request. Beyond the limit the oldest is sent without its trace.
    pub(crate) fn add(&mut self, id: u64, context: TraceContext) {
        add(&mut self.unsent, id, context);
    }

    /// The connection was lost: these requests have no answer, and are sent again with their traces.
    pub(crate) fn lost(&mut self, open: impl Iterator<Item = u64>) {
        let sent = std::mem::take(&mut self.sent);
        if sent.is_empty() {
            return;
        }
        open.for_each(|id| {
            if let Some(context) = sent.get(&id) {
                self.add(id, *context);
            }
        });
    }

    /// The entry for the message that has this request.
    pub(crate) fn of_request(&mut self, id: u64) -> Vec<TracedRequest> {
        let context = self.unsent.remove(&id);
        context.map(|context| self.sends(id, context)).into_iter().collect()
    }

    /// The entries for the message that has these inserts.
    pub(crate) fn of_inserts(&mut self, message: &Insert) -> Vec<TracedRequest> {
        let mut traced = Vec::new();
        if self.unsent.is_empty() {
            return traced;
        }
        let mut next = message.first_id;
        for run in &message.runs {
            let first = next + u64::from(run.skipped);
            next = first + u64::from(run.requests);
            while let Some((&id, &context)) = self.unsent.range(first..next).next() {
                self.unsent.remove(&id);
                traced.push(self.sends(id, context));
            }
        }
        traced
    }

    fn sends(&mut self, id: u64, context: TraceContext) -> TracedRequest {
        add(&mut self.sent, id, context);
        context.encode(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::InsertRun;

    const CONTEXT: TraceContext =
        TraceContext { trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, parent: 7, sampled: true };

    #[test]
    fn a_context_survives_the_wire_and_ids_of_zeros_are_invalid() {
        let traced = CONTEXT.encode(3);
        assert_eq!((traced.id, TraceContext::decode(&traced)), (3, Some(CONTEXT)));
        assert_eq!((traced.trace_high, traced.trace_low), (0x0af7_6519_16cd_43dd, 0x8448_eb21_1c80_319c));
        assert_eq!(TraceContext::decode(&TracedRequest { parent: 0, ..traced }), None);
        assert_eq!(TraceContext::decode(&TracedRequest { trace_high: 0, trace_low: 0, ..traced }), None);
        let half = TraceContext { trace: 1 << 64, sampled: false, ..CONTEXT };
        assert_eq!(TraceContext::decode(&half.encode(3)), Some(half));
    }

    #[test]
    fn a_message_of_inserts_names_the_traced_ones_among_its_runs_once() {
        let mut traces = RequestTraces::default();
        [4, 6, 7, 9, 12].into_iter().for_each(|id| traces.add(id, CONTEXT));
        let run = |skipped, requests| InsertRun { table: 0, requests, items: 1, skipped };
        // The requests 5, 6, 9 and 10.
        let message = Insert { first_id: 5, runs: vec![run(0, 2), run(2, 2)], ..Insert::default() };
        let ids = |traced: Vec<TracedRequest>| traced.iter().map(|traced| traced.id).collect::<Vec<_>>();
        assert_eq!(ids(traces.of_inserts(&message)), [6, 9]);
        assert_eq!(ids(traces.of_inserts(&message)), [0; 0]);
        assert_eq!(ids(traces.of_request(7)), [7]);
        assert_eq!(traces.unsent.into_keys().collect::<Vec<_>>(), [4, 12]);
    }

    #[test]
    fn traces_of_requests_that_are_never_sent_are_bounded() {
        let mut traces = RequestTraces::default();
        (1..MOST as u64 + 10).for_each(|id| traces.add(id, CONTEXT));
        assert_eq!((traces.unsent.len(), traces.unsent.first_key_value().unwrap().0), (MOST, &10));
    }

    #[test]
    fn requests_without_an_answer_keep_their_trace_on_the_next_connection() {
        let mut traces = RequestTraces::default();
        [3, 5, 8].into_iter().for_each(|id| traces.add(id, CONTEXT));
        assert_eq!((traces.of_request(3).len(), traces.of_request(5).len()), (1, 1));
        // 3 was answered, 4 has no trace, and 8 is not sent yet.
        traces.lost([4, 5, 8].into_iter());
        assert_eq!(traces.unsent.keys().copied().collect::<Vec<_>>(), [5, 8]);
        assert_eq!(traces.of_request(5), [CONTEXT.encode(5)]);
        (1..MOST as u64 + 10).for_each(|id| _ = traces.sends(id, CONTEXT));
        assert_eq!(traces.sent.len(), MOST);
    }

    #[tokio::test]
    async fn the_requests_of_a_future_belong_to_its_trace_and_those_of_its_thread_do_not() {
        let seen = TraceContext::within_future(Some(CONTEXT), async {
            let before = TraceContext::current();
            tokio::task::yield_now().await;
            (before, TraceContext::current())
        });
        let (seen, outside) = tokio::join!(seen, async { TraceContext::current() });
        assert_eq!((seen, outside), ((Some(CONTEXT), Some(CONTEXT)), None));
        let panics = || TraceContext::within(Some(CONTEXT), || panic!("as a defect does"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(TraceContext::current(), None);
    }
}
