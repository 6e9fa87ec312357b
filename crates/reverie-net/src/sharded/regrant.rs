//! Grants inserts again after a server was restarted, also while no call of the client does.
//!
//! A ration ends with its server. Inserts that wait at the server that follows, and calls that were sent before it was
//! noticed, would otherwise wait until the client draws or inserts again.

use super::calls::RequestEnd;
use super::group::ShardedState;
use super::members::MAX_RETRY_PAUSE;
use super::table::Table;
use reverie_core::table::Withdrawal;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The time between two looks at the servers. A look makes no request.
const PERIOD: Duration = Duration::from_millis(250);
/// The looks after a restart at which inserts are granted: an insert that was sent before may arrive late.
const ROUNDS: u32 = 20;

/// The servers as they are now: how often each was restarted, and whether it is lost.
pub(super) fn seen(group: &ShardedState) -> Vec<(u64, bool)> {
    group.members.all().map(|(shard, replay)| (replay.restarts(), group.members.is_lost(shard))).collect()
}

/// Runs until the client is closed. `known`: the servers when it was made.
pub(super) async fn keep_granting(group: Weak<ShardedState>, mut known: Vec<(u64, bool)>) {
    let mut rounds = 0;
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(group) = group.upgrade() else { return };
        if group.members.refuse_closed().is_err() {
            return;
        }
        let now = seen(&group);
        if known != now {
            (known, rounds) = (now, ROUNDS);
        }
        if rounds > 0 && grant_all(&group).await {
            rounds -= 1;
        }
    }
}

/// Grants inserts into each table that is open. False if some wait that the limits allow, or a server is late.
async fn grant_all(group: &Arc<ShardedState>) -> bool {
    let tables: Vec<Arc<Table>> = group.open_tables().values().map(Arc::clone).collect();
    let mut is_settled = true;
    for table in tables.iter().filter(|table| table.kind.grants) {
        let end = RequestEnd::new(&group.runtime, Some(MAX_RETRY_PAUSE), &Withdrawal::default());
        let granted = table.refresh_granting(&end, &vec![0; group.members.len()]).await;
        is_settled &= granted.is_ok() && !table.holds_inserts_back();
    }
    is_settled
}
