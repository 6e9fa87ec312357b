//! Queries of items, and the neighbours that an update raises.

use super::broken;
use crate::proto;
use reverie_core::table::{Comparison, Condition, Field, MAX_CONDITIONS, Neighbours, Query};
use reverie_core::{Error, Result};

/// Encodes a query of a table.
pub fn encode_query(table: &str, query: &Query) -> proto::Query {
    proto::Query {
        table: table.to_owned(),
        conditions: encode_conditions(&query.conditions),
        limit: query.limit.map(|limit| limit as u64),
        order: query.order.map(|(by, descending)| proto::Order { by: encode_field(by).into(), descending }),
    }
}

/// Decodes a table and its query.
pub fn decode_query(message: proto::Query) -> Result<(String, Query)> {
    let order = message.order.map(|order| Ok((decode_field(order.by)?, order.descending)));
    let query = Query {
        conditions: decode_conditions(&message.conditions)?,
        limit: message.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        order: order.transpose()?,
    };
    Ok((message.table, query))
}

/// Encodes conditions.
pub fn encode_conditions(conditions: &[Condition]) -> Vec<proto::Condition> {
    let encode = |condition: &Condition| proto::Condition {
        field: encode_field(condition.field).into(),
        comparison: encode_comparison(condition.comparison).into(),
        value: condition.value,
    };
    conditions.iter().map(encode).collect()
}

/// Decodes conditions; `InvalidArgument` for more than a request may have, or for NaN.
pub fn decode_conditions(messages: &[proto::Condition]) -> Result<Vec<Condition>> {
    if messages.len() > MAX_CONDITIONS {
        let reason = format!("where: at most {MAX_CONDITIONS} conditions, got {}", messages.len());
        return Err(Error::InvalidArgument(reason));
    }
    let decode = |message: &proto::Condition| {
        Condition::new(decode_field(message.field)?, decode_comparison(message.comparison)?, message.value)
    };
    messages.iter().map(decode).collect()
}

/// Encodes the neighbours that an update raises.
pub fn encode_neighbours(neighbours: Neighbours) -> proto::Neighbours {
    let (count, decay) = neighbours.parts();
    proto::Neighbours { count, decay }
}

/// Decodes the neighbours that an update raises; `InvalidArgument` for invalid numbers.
pub fn decode_neighbours(message: proto::Neighbours) -> Result<Neighbours> {
    Neighbours::new(u64::from(message.count), message.decay)
}

fn encode_field(field: Field) -> proto::Field {
    match field {
        Field::Priority => proto::Field::Priority,
        Field::TimesSampled => proto::Field::TimesSampled,
        Field::Version => proto::Field::Version,
        Field::Age => proto::Field::Age,
    }
}

fn decode_field(field: i32) -> Result<Field> {
    Ok(match proto::Field::try_from(field) {
        Ok(proto::Field::Priority) => Field::Priority,
        Ok(proto::Field::TimesSampled) => Field::TimesSampled,
        Ok(proto::Field::Version) => Field::Version,
        Ok(proto::Field::Age) => Field::Age,
        Ok(proto::Field::None) | Err(_) => return Err(broken(format!("where: the field {field} is unknown"))),
    })
}

fn encode_comparison(comparison: Comparison) -> proto::Comparison {
    match comparison {
        Comparison::Less => proto::Comparison::Less,
        Comparison::AtMost => proto::Comparison::AtMost,
        Comparison::Equal => proto::Comparison::Equal,
        Comparison::NotEqual => proto::Comparison::NotEqual,
        Comparison::AtLeast => proto::Comparison::AtLeast,
        Comparison::More => proto::Comparison::More,
    }
}

fn decode_comparison(comparison: i32) -> Result<Comparison> {
    Ok(match proto::Comparison::try_from(comparison) {
        Ok(proto::Comparison::Less) => Comparison::Less,
        Ok(proto::Comparison::AtMost) => Comparison::AtMost,
        Ok(proto::Comparison::Equal) => Comparison::Equal,
        Ok(proto::Comparison::NotEqual) => Comparison::NotEqual,
        Ok(proto::Comparison::AtLeast) => Comparison::AtLeast,
        Ok(proto::Comparison::More) => Comparison::More,
        Ok(proto::Comparison::None) | Err(_) => {
            return Err(broken(format!("where: the comparison {comparison} is unknown")));
        }
    })
}
