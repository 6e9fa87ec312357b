//! A client's copy of the descriptions of the server's tables.

use super::server_description::ServerDescription;
use reverie_core::item::Item;
use reverie_core::table::{Priority, Table, TableOptions};
use reverie_core::{Error, Result};
use std::sync::Arc;

/// Empty tables made from the server's description: they refuse the items that the server's tables would refuse.
pub(super) struct KnownTables {
    address: String,
    /// In the client's order; tables are only added.
    tables: Vec<Table>,
    described: Option<Arc<ServerDescription>>,
}

impl KnownTables {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), tables: Vec::new(), described: None }
    }

    pub(super) fn described(&self) -> Option<Arc<ServerDescription>> {
        self.described.clone()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.options().name.clone()).collect()
    }

    /// The index of a table in the client's list.
    pub(super) fn find(&self, name: &str) -> Result<usize> {
        if let Some(index) = self.position(name) {
            return Ok(index);
        }
        match &self.described {
            None => Err(Error::Unavailable(format!("{} has not been asked for its tables yet", self.address))),
            Some(_) => Err(Error::UnknownTable { name: name.to_owned(), known: self.names() }),
        }
    }

    pub(super) fn get(&self, name: &str) -> Result<&Table> {
        Ok(&self.tables[self.find(name)?])
    }

    /// Refuses items that the server's table would refuse.
    pub(super) fn check(&mut self, index: usize, items: &[(Item, Priority)]) -> Result<()> {
        let checker = &mut self.tables[index];
        for (item, priority) in items {
            checker.check(item, if let Priority::Value(value) = priority { *value } else { 0.0 })?;
        }
        Ok(())
    }

    /// Stores the server's description; returns for each of its tables the index in the client's list.
    pub(super) fn describe(&mut self, version: String, tables: Vec<TableOptions>) -> Result<Vec<usize>> {
        let mut numbers = Vec::with_capacity(tables.len());
        for options in &tables {
            let table = Table::new(options.clone(), 0)?;
            let known = self.position(&options.name);
            numbers.push(known.unwrap_or(self.tables.len()));
            match known {
                Some(known) => self.tables[known] = table,
                None => self.tables.push(table),
            }
        }
        if self.described.is_none() {
            self.described = Some(Arc::new(ServerDescription { version, tables }));
        }
        Ok(numbers)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|known| known.options().name == name)
    }
}
