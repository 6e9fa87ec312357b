//! Checks of options, and of items against a table's signature.

use crate::error::{Error, Result};
use crate::item::{Key, Pattern};
use crate::spec::{ANY_SIZE, ColumnSignature, Signature};
use crate::table::types::options::TableOptions;
use crate::table::types::selector::SelectorOptions;

impl TableOptions {
    /// True if a selector tracks the largest priority.
    pub(in crate::table) fn knows_largest(&self) -> bool {
        self.sampler.knows_largest() || self.remover.knows_largest()
    }

    /// Refuses options that can never work.
    pub fn validate(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::InvalidArgument(reason));
        if self.name.is_empty() {
            return refuse("a table's name must not be empty".to_owned());
        }
        if self.max_size == 0 || self.max_size > (Key::MAX_SLOTS / 2) as u64 {
            return refuse(format!(
                "table '{}': max_size must be between 1 and {}, got {}",
                self.name,
                Key::MAX_SLOTS / 2,
                self.max_size
            ));
        }
        if self.max_bytes == Some(0) {
            return refuse(format!("table '{}': max_bytes must be at least 1", self.name));
        }
        if u32::from(self.shard) >= 1 << Key::SHARD_BITS {
            return refuse(format!("table '{}': the shard must be below 64, got {}", self.name, self.shard));
        }
        let stratified = |selector: &SelectorOptions| matches!(selector, SelectorOptions::Stratified { .. });
        if stratified(&self.remover) || (stratified(&self.sampler) && self.max_times_sampled > 0) {
            return refuse(format!(
                "table '{}': stratified draws are for samplers of tables without max_times_sampled: a remover draws \
                 one item at a time, and where items leave between the draws of a batch there is nothing to spread over",
                self.name
            ));
        }
        self.sampler.validate()?;
        self.remover.validate()?;
        match self.limiter.impossible(self.max_size) {
            Some(reason) => refuse(format!("table '{}': {reason}", self.name)),
            None => Ok(()),
        }
    }
}

/// The item's column for every column of the signature; `None` if it is at the same position.
///
/// The structures may differ. Columns match by name if all names are the same, otherwise by position.
pub(super) fn order_of(signature: &Signature, pattern: &Pattern) -> Option<Vec<usize>> {
    let named = |at: usize| signature.columns[at].path == pattern.columns[at].spec.path;
    if (0..signature.columns.len()).all(named) {
        return None;
    }
    let place = |want: &ColumnSignature| pattern.columns.iter().position(|got| got.spec.path == want.path);
    signature.columns.iter().map(place).collect()
}

/// Checks an item's columns against a table's signature: dtype, rank and sizes of every column.
///
/// The structures that the columns fill may differ, as in dm-reverb.
pub fn check_pattern(signature: &Signature, pattern: &Pattern) -> Result<()> {
    if signature.columns.len() != pattern.columns.len() {
        let paths = |all: &mut dyn Iterator<Item = &String>| all.cloned().collect::<Vec<_>>().join(", ");
        return Err(Error::Signature {
            path: String::new(),
            got: format!(
                "{} columns ({})",
                pattern.columns.len(),
                paths(&mut pattern.columns.iter().map(|c| &c.spec.path))
            ),
            want: format!("{} ({})", signature.columns.len(), paths(&mut signature.columns.iter().map(|c| &c.path))),
        });
    }
    let order = order_of(signature, pattern);
    for (at, want) in signature.columns.iter().enumerate() {
        let got = &pattern.columns[order.as_ref().map_or(at, |order| order[at])];
        let mut shape: Vec<usize> = got.spec.shape.clone();
        if !got.squeeze {
            shape.insert(usize::from(got.stack_axis).min(shape.len()), got.cells.len());
        }
        // The signature of items of whole steps may include their time axis or not.
        let per_step = pattern.timestep.then(|| match got.squeeze {
            true => [&[1], shape.as_slice()].concat(),
            false => got.spec.shape.clone(),
        });
        let fits = |shape: &[usize]| fits(want, shape);
        if want.dtype != got.spec.dtype || !(fits(&shape) || per_step.as_deref().is_some_and(fits)) {
            let sizes = shape.iter().map(|size| Some(*size).filter(|size| *size != ANY_SIZE)).collect::<Vec<_>>();
            return Err(Error::Signature {
                path: want.path.clone(),
                got: format!("{} {}", got.spec.dtype, open_shape(&sizes)),
                want: format!("{} {}", want.dtype, open_shape(&want.shape)),
            });
        }
    }
    Ok(())
}

fn fits(want: &ColumnSignature, shape: &[usize]) -> bool {
    want.shape.len() == shape.len() && want.shape.iter().zip(shape).all(|(want, got)| want.is_none_or(|n| n == *got))
}

fn open_shape(shape: &[Option<usize>]) -> String {
    let sizes: Vec<String> = shape.iter().map(|size| size.map_or("any".to_owned(), |n| n.to_string())).collect();
    format!("[{}]", sizes.join(", "))
}
