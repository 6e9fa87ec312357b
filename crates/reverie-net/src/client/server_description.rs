//! The description that a server sends when a client connects.

use reverie_core::table::TableOptions;

/// The server's description at the first connection.
#[derive(Clone, Debug)]
pub struct ServerDescription {
    /// The version of its package.
    pub version: String,
    /// The server's tables.
    pub tables: Vec<TableOptions>,
}
