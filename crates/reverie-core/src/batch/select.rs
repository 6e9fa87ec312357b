//! The columns that a batch reads, and the remaining structure.

use crate::error::{Error, Result};
use crate::spec::{Structure, StructureKey};

/// The columns that the paths select, in flattening order of the remaining structure, and that structure.
///
/// A partly selected list, tuple or record becomes a dictionary by index or field name: its class could not be built
/// from a part.
pub(super) fn select(structure: &Structure, known: &[&str], paths: &[String]) -> Result<(Vec<usize>, Structure)> {
    let mut selected = vec![false; known.len()];
    for path in paths {
        let mut found = false;
        for (column, selected) in known.iter().zip(&mut selected) {
            if is_below(column, path) {
                (*selected, found) = (true, true);
            }
        }
        if !found {
            let known = known.iter().map(|path| format!("'{path}'")).collect::<Vec<_>>().join(", ");
            return Err(Error::InvalidArgument(format!("columns: there is no '{path}'; the items have {known}")));
        }
    }
    let mut next = 0;
    let (structure, columns) = prune(structure, &mut next, &selected).ok_or_else(|| {
        Error::InvalidArgument("columns: an empty list selects nothing; leave it out to read all".to_owned())
    })?;
    Ok((columns, structure))
}

fn is_below(column: &str, path: &str) -> bool {
    column.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.is_empty())
}

fn prune(structure: &Structure, next: &mut usize, selected: &[bool]) -> Option<(Structure, Vec<usize>)> {
    let first = *next;
    let mut children: Vec<(StructureKey, Structure, Vec<usize>)> = Vec::new();
    let mut enter = |key: StructureKey, child: &Structure| {
        if let Some((child, columns)) = prune(child, next, selected) {
            children.push((key, child, columns));
        }
    };
    match structure {
        Structure::Leaf => {
            *next += 1;
            return selected[first].then(|| (Structure::Leaf, vec![first]));
        }
        Structure::Dict(entries) => entries.iter().for_each(|(key, child)| enter(key.clone(), child)),
        Structure::List(of) | Structure::Tuple(of) => {
            of.iter().enumerate().for_each(|(index, child)| enter(StructureKey::Int(index as i64), child));
        }
        Structure::Record { fields, .. } => {
            fields.iter().for_each(|(name, child)| enter(StructureKey::Str(name.clone()), child));
        }
    }
    if selected[first..*next].iter().all(|selected| *selected) {
        return (*next > first).then(|| (structure.clone(), (first..*next).collect()));
    }
    children.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    let columns = children.iter().flat_map(|(_, _, columns)| columns.iter().copied()).collect();
    let entries = children.into_iter().map(|(key, child, _)| (key, child)).collect::<Vec<_>>();
    (!entries.is_empty()).then_some((Structure::Dict(entries), columns))
}
