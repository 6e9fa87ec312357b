//! The parts of a server that are watched.

use super::run::RunFigures;
use crate::server::ServerState;
use reverie_core::Result;
use reverie_core::table::{JournalInfo, Tables};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The parts of a server that are watched.
pub(super) struct WatchedServer {
    pub(super) tables: Arc<Tables>,
    /// The state of its connections, if it listens for clients.
    pub(super) shared: Option<Arc<ServerState>>,
    started: Instant,
    /// A random number of this start.
    pub(super) incarnation: u64,
    /// Guards the newest figures of a training run. Only a pointer is read or replaced under it.
    run: Mutex<Option<Arc<RunFigures>>>,
}

impl WatchedServer {
    /// A server that starts now.
    pub(super) fn new(tables: Arc<Tables>, shared: Option<Arc<ServerState>>) -> Self {
        let incarnation = RandomState::new().hash_one("incarnation");
        Self { tables, shared, started: Instant::now(), incarnation, run: Mutex::default() }
    }

    /// Seconds since the start.
    pub(super) fn uptime(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Shows these figures of a training run from now on. `InvalidArgument`: see `RunFigures::parse`.
    pub(super) fn publish(&self, figures: &str) -> Result<()> {
        let run = Arc::new(RunFigures::parse(figures)?);
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
        Ok(())
    }

    /// The newest figures of a training run, if one has published any.
    pub(super) fn run(&self) -> Option<Arc<RunFigures>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The figures of the journal.
    pub(super) fn journal(&self) -> Option<JournalInfo> {
        self.tables.journal()
    }

    /// The reason why it cannot do its work now; `None` if it can.
    pub(super) fn not_ready_reason(&self) -> Option<String> {
        if self.shared.as_ref().is_some_and(|shared| shared.is_stopping()) {
            return Some("the server stops".to_owned());
        }
        if let Err(error) = self.tables.check_open() {
            return Some(error.to_string());
        }
        let error = self.journal()?.error?;
        Some(format!("the journal: {error}"))
    }
}

/// Empty tables `t0`, `t1`, ..., for tests.
#[cfg(test)]
pub(super) fn few_tables(count: usize) -> Arc<Tables> {
    use reverie_core::chunk::Compression;
    use reverie_core::clock::{Clock, ManualClock};
    use reverie_core::table::TableOptions;
    use reverie_core::table::limiter::Limiter;
    use reverie_core::table::selector::SelectorOptions;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = |number| TableOptions {
        name: format!("t{number}"),
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size: 10,
        limiter: Limiter::min_size(1).unwrap(),
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        constructed: None,
        sampler_seed: 1,
        remover_seed: 2,
        extensions: Vec::new(),
    };
    Arc::new(Tables::new((0..count).map(options).collect(), None, &clock, 7).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_whose_tables_are_closed_is_in_trouble() {
        let watched = WatchedServer::new(few_tables(1), None);
        assert_eq!(watched.not_ready_reason(), None);
        watched.tables.close();
        let trouble = watched.not_ready_reason().unwrap();
        assert!(trouble.contains("'t0'") && trouble.contains("closed"), "{trouble}");
    }
}
