//! The items of a table as JSON: some by their order, or one by its key.

use super::columns::{ResponseBudget, column};
use reverie_core::sample::Draws;
use reverie_core::table::{Field, Query, SharedTable, Tables};
use reverie_core::{Error, Result};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Items of one response, at most, and without a limit.
const MOST_ITEMS: usize = 50;
const FEW_ITEMS: usize = 10;
/// Columns of an item that are read.
const MOST_COLUMNS: usize = 64;

/// The wanted items.
#[derive(Debug, PartialEq)]
pub(super) enum ItemSelection {
    /// The first ones in an order.
    First { query: Query },
    /// The one with this key.
    Key(i64),
}

impl ItemSelection {
    /// Reads `order`, `limit` and `key` of a request. `InvalidArgument` names the wrong one.
    pub(super) fn parse(parameters: &HashMap<String, String>) -> Result<Self> {
        let wrong = |why: String| Err(Error::InvalidArgument(why));
        if let Some(unknown) = parameters.keys().find(|name| !["order", "limit", "key"].contains(&name.as_str())) {
            return wrong(format!("unknown parameter '{unknown}'; use order, limit or key"));
        }
        if let Some(key) = parameters.get("key") {
            if parameters.len() > 1 {
                return wrong("key is for one item: leave out order and limit".to_owned());
            }
            let number = key.parse();
            return number.map(Self::Key).or_else(|_| wrong(format!("key must be a whole number, got '{key}'")));
        }
        let order = match parameters.get("order").map(String::as_str) {
            None | Some("newest") => Some((Field::Age, false)),
            Some("oldest") => None,
            Some("priority") => Some((Field::Priority, true)),
            Some(other) => return wrong(format!("order must be newest, oldest or priority, got '{other}'")),
        };
        let limit = match parameters.get("limit") {
            None => FEW_ITEMS,
            Some(limit) => match limit.parse() {
                Ok(limit @ 1..=MOST_ITEMS) => limit,
                _ => return wrong(format!("limit must be between 1 and {MOST_ITEMS}, got '{limit}'")),
            },
        };
        Ok(Self::First { query: Query { conditions: Vec::new(), limit: Some(limit), order } })
    }
}

/// `GET /api/tables/NAME/items`. Blocks while it searches the table and reads the items.
pub(super) fn items(tables: &Tables, table: &str, wanted: &ItemSelection) -> Result<Value> {
    let table = tables.get(table)?;
    let now = tables.now().as_secs_f64();
    let mut room = ResponseBudget::new();
    let found = match wanted {
        ItemSelection::Key(key) => vec![item(&table.get(&[*key])?, now, &mut room)],
        ItemSelection::First { query } => first(table, query, now, &mut room)?,
    };
    Ok(json!({ "table": table.name(), "items": found }))
}

fn first(table: &SharedTable, query: &Query, now: f64, room: &mut ResponseBudget) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for key in table.query(query)?.keys {
        match table.get(&[key.get()]) {
            Ok(draws) => found.push(item(&draws, now, room)),
            // It left the table after the search.
            Err(Error::UnknownKey { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The only draw. A column that cannot be read has the reason.
fn item(draws: &Draws, now: f64, room: &mut ResponseBudget) -> Value {
    let of = &draws.items[0];
    let columns = of.pattern.columns.iter().take(MOST_COLUMNS).map(|described| {
        let path = described.spec.path.as_str();
        column(of, path, room).unwrap_or_else(|error| json!({ "path": path, "left_out": error.to_string() }))
    });
    let columns = columns.collect::<Vec<_>>();
    json!({
        // As text: a browser rounds large numbers.
        "key": draws.keys[0].get().to_string(),
        "priority": draws.priorities[0],
        "times_sampled": draws.times_sampled[0],
        "version": draws.versions[0],
        "age_seconds": (now - draws.inserted_at[0] as f64 * 1e-9).max(0.0),
        "num_columns": of.pattern.columns.len(),
        "columns": columns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(parameters: &[(&str, &str)]) -> Result<ItemSelection, String> {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ItemSelection::parse(&parameters).map_err(|error| error.to_string())
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        for (parameters, word) in [
            (&[("order", "largest")][..], "newest, oldest or priority, got 'largest'"),
            (&[("limit", "0")], "between 1 and 50, got '0'"),
            (&[("limit", "51")], "between 1 and 50, got '51'"),
            (&[("limit", "many")], "got 'many'"),
            (&[("key", "1.5")], "whole number, got '1.5'"),
            (&[("key", "1"), ("limit", "1")], "leave out order and limit"),
            (&[("orders", "newest")], "unknown parameter 'orders'"),
        ] {
            let error = parse(parameters).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(parse(&[("key", "-3")]), Ok(ItemSelection::Key(-3)));
        assert_eq!(parse(&[]), parse(&[("order", "newest"), ("limit", "10")]));
    }
}
