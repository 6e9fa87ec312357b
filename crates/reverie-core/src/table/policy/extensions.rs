//! Refuses `insert_on_sample` extensions that can never work.

use crate::error::{Error, Result};
use crate::spec::Signature;
use crate::table::types::copies::InsertOnSample;

/// Refuses invalid extensions: a missing target table, a cycle of tables, or items that the target never accepts.
pub(in crate::table) fn check(
    all: &[(&str, Option<Signature>)],
    extensions: &[(String, Vec<InsertOnSample>)],
) -> Result<()> {
    let refuse = |table: &str, target: &str, reason: &str| {
        let what = format!("table '{table}': insert_on_sample into table '{target}' {reason}");
        Err(Error::InvalidArgument(what))
    };
    let targets = |of: &str| {
        let found = extensions.iter().find(|(table, _)| table == of);
        found.into_iter().flat_map(|(_, extensions)| extensions).map(|extension| extension.target.as_str())
    };
    for (table, extensions) in extensions {
        for (index, InsertOnSample { target, .. }) in extensions.iter().enumerate() {
            let of = |name: &str| all.iter().find(|(table, _)| *table == name).map(|(_, signature)| signature);
            let Some(wanted) = of(target) else {
                let known: Vec<String> = all.iter().map(|(table, _)| format!("'{table}'")).collect();
                let reason = format!("needs it on the same server, which has {}", known.join(", "));
                return refuse(table, target, &reason);
            };
            if extensions[..index].iter().any(|before| before.target == *target) {
                return refuse(table, target, "is there twice; give it once");
            }
            let (mut reached, mut at) = (vec![target.as_str()], 0);
            while at < reached.len() {
                if reached[at] == table {
                    return refuse(table, target, "leads back to it; leave one of the extensions out");
                }
                let more: Vec<&str> = targets(reached[at]).filter(|name| !reached.contains(name)).collect();
                reached.extend(more);
                at += 1;
            }
            if let (Some(wanted), Some(Some(got))) = (wanted, of(table))
                && !alike(wanted, got)
            {
                return refuse(table, target, &format!("copies {got}, which its signature {wanted} refuses"));
            }
        }
    }
    Ok(())
}

/// True if an item may fit both signatures.
fn alike(left: &Signature, right: &Signature) -> bool {
    left.columns.len() == right.columns.len()
        && left.structure.difference(&right.structure).is_none()
        && left.columns.iter().zip(&right.columns).all(|(left, right)| left.dtype == right.dtype)
}
