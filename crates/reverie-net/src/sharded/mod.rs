//! Several servers as one replay.
//!
//! ```text
//! Sharded: Replay   replay.rs    the operations, each a request to some of the servers
//!   Group           group.rs     what the operations share: the servers, the tables in use
//!   Members         members.rs   which servers can be reached, and which one a key belongs to
//!   Table           table.rs     one table of all servers: limits, counts, requests that wait
//!     draws         draws.rs     draws in rounds (round.rs), as from one table
//!     changes       changes.rs   priorities, deletes, limits
//!     Model         model.rs     the decisions: the split of draws, and the inserts granted to each server
//!   regrant         regrant.rs   inserts granted again after a server was restarted
//!   join            join.rs      one batch of the draws of several servers
//!   merge           merge.rs     one answer of the answers of several servers
//! ```
//!
//! A request is a future that the waiting caller drives: it asks all servers first, and then waits once. No thread
//! belongs to it. Tasks of the network's runtime are batches ahead, updates that no caller waits for, attempts to reach a
//! server that is lost or late, and grants after a restart.

mod prefetch;
mod calls;
mod changes;
mod draws;
mod group;
mod join;
mod members;
mod merge;
mod model;
mod regrant;
mod replay;
mod round;
mod table;

pub use group::{Shard, Sharded, ShardedOptions};
pub use model::{KeptDraws, Model, Split};
