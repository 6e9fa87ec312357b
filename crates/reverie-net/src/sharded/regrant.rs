//! Grants inserts again after a server was restarted, also while no call of the client does.
//!
//! A ration ends with its server. Inserts that wait at the server that follows, and calls that were sent before it was
//! noticed, would otherwise wait until the client draws or inserts again.

use super::calls::RequestEnd;
use super::members::{MAX_RETRY_PAUSE, Members};
use super::table::Table;
use reverie_core::table::Withdrawal;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The time between two looks at the servers. A look makes no request.
const PERIOD: Duration = Duration::from_millis(250);
/// The looks after a restart at which inserts are granted: an insert that was sent before may arrive late.
const ROUNDS: u32 = 20;

/// Grants inserts again, from a task, until the client is closed. `tables`: those that are open; `None` once it is gone.
pub(super) fn keep_granting(
    members: &Arc<Members>,
    runtime: &Handle,
    tables: impl Fn() -> Option<Vec<Arc<Table>>> + Send + 'static,
) {
    let (mut known, mut rounds) = (seen(members), 0);
    let (members, handle) = (Arc::downgrade(members), runtime.clone());
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            let (Some(members), Some(tables)) = (members.upgrade(), tables()) else { return };
            if members.refuse_closed().is_err() {
                return;
            }
            let now = seen(&members);
            if known != now {
                (known, rounds) = (now, ROUNDS);
            }
            if rounds > 0 && grant_all(&tables, &handle).await {
                rounds -= 1;
            }
        }
    });
}

/// The servers as they are now: how often each was restarted, and whether it is lost.
fn seen(members: &Members) -> Vec<(u64, bool)> {
    members.all().map(|(shard, replay)| (replay.restarts(), members.is_lost(shard))).collect()
}

/// Grants inserts into tables. False if some wait that the limits allow, or a server is late.
async fn grant_all(tables: &[Arc<Table>], runtime: &Handle) -> bool {
    let mut is_settled = true;
    for table in tables.iter().filter(|table| table.kind.grants) {
        let end = RequestEnd::new(runtime, Some(MAX_RETRY_PAUSE), &Withdrawal::default());
        let granted = table.refresh_granting(&end, &vec![0; table.members().len()]).await;
        is_settled &= granted.is_ok() && !table.holds_inserts_back();
    }
    is_settled
}
