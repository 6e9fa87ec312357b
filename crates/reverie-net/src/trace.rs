//! The trace that a request belongs to, as W3C's `traceparent` names it.

use crate::proto::{Insert, TracedRequest};
use std::cell::Cell;
use std::collections::BTreeMap;

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

/// Traced requests that are not sent yet, at most.
const MOST_UNSENT: usize = 4096;

/// The traces of requests that a client has not sent yet, by their numbers.
#[derive(Default)]
pub(crate) struct Unsent(BTreeMap<u64, TraceContext>);

impl Unsent {
    /// Adds a request. Beyond the limit the oldest is sent without its trace.
    pub(crate) fn add(&mut self, id: u64, context: TraceContext) {
        self.0.insert(id, context);
        if self.0.len() > MOST_UNSENT {
            self.0.pop_first();
        }
    }

    /// The entry for the message that has this request.
    pub(crate) fn of_request(&mut self, id: u64) -> Vec<TracedRequest> {
        self.0.remove(&id).map(|context| context.encode(id)).into_iter().collect()
    }

    /// The entries for the message that has these inserts.
    pub(crate) fn of_inserts(&mut self, message: &Insert) -> Vec<TracedRequest> {
        let mut traced = Vec::new();
        if self.0.is_empty() {
            return traced;
        }
        let mut next = message.first_id;
        for run in &message.runs {
            let first = next + u64::from(run.skipped);
            next = first + u64::from(run.requests);
            while let Some((&id, context)) = self.0.range(first..next).next() {
                traced.push(context.encode(id));
                self.0.remove(&id);
            }
        }
        traced
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
        let mut unsent = Unsent::default();
        [4, 6, 7, 9, 12].into_iter().for_each(|id| unsent.add(id, CONTEXT));
        let run = |skipped, requests| InsertRun { table: 0, requests, items: 1, skipped };
        // The requests 5, 6, 9 and 10.
        let message = Insert { first_id: 5, runs: vec![run(0, 2), run(2, 2)], ..Insert::default() };
        let ids = |traced: Vec<TracedRequest>| traced.iter().map(|traced| traced.id).collect::<Vec<_>>();
        assert_eq!(ids(unsent.of_inserts(&message)), [6, 9]);
        assert_eq!(ids(unsent.of_inserts(&message)), [0; 0]);
        assert_eq!(ids(unsent.of_request(7)), [7]);
        assert_eq!(unsent.0.into_keys().collect::<Vec<_>>(), [4, 12]);
    }

    #[test]
    fn traces_of_requests_that_are_never_sent_are_bounded() {
        let mut unsent = Unsent::default();
        (1..MOST_UNSENT as u64 + 10).for_each(|id| unsent.add(id, CONTEXT));
        assert_eq!((unsent.0.len(), unsent.0.first_key_value().unwrap().0), (MOST_UNSENT, &10));
    }
}
