//! The forms that the server has: if there are too many, the least recently used are released.

use super::super::{MAX_ENTRY_BYTES, checks};
use super::known::ByAddress;
use crate::convert::item::{decode_pattern, encode_pattern};
use crate::proto;
use prost::Message;
use reverie_core::item::{Cells, Form};
use reverie_core::{Error, Result};

/// Forms that the server keeps for a connection at most.
const KEPT: usize = 4096;

/// Bytes of the lists of cells in one form at most.
const MAX_LISTED_BYTES: usize = 16 << 20;

struct KnownForm {
    /// Held so that its address is not reused.
    form: Form,
    number: u32,
    checks: u64,
    used: u64,
}

/// The forms by their address.
#[derive(Default)]
pub(super) struct Forms {
    known: ByAddress<KnownForm>,
    /// The number of defined forms, and of uses of forms.
    defined: u32,
    used: u64,
    /// The form of the item before: address, number, looks.
    last: Option<(usize, u32, u64)>,
}

fn address(form: &Form) -> usize {
    std::ptr::from_ref(&**form).addr()
}

/// Bytes of the cells in the form, if they are a list, which is not of the head.
fn listed_bytes(cells: &Cells) -> usize {
    match cells {
        Cells::Range { .. } => 0,
        Cells::List(list) => size_of_val(&list[..]),
    }
}

impl Forms {
    /// Defines a new form, and counts its bytes in the head and in all; returns the cost of checking its cells.
    pub(super) fn define(
        &mut self,
        form: &Form,
        definitions: &mut Vec<proto::PatternDef>,
        (head_bytes, bytes): (&mut usize, &mut usize),
    ) -> Result<u64> {
        let address = address(form);
        if let Some((_, _, checks)) = self.last.filter(|(last, ..)| *last == address) {
            return Ok(checks);
        }
        self.used += 1;
        let known = match self.known.get_mut(&address) {
            Some(known) => known,
            None => {
                let definition = encode_pattern(self.defined + 1, form);
                let cells: usize = form.columns.iter().map(|column| listed_bytes(&column.cells)).sum();
                let size = definition.encoded_len() - cells;
                if size > MAX_ENTRY_BYTES || cells > MAX_LISTED_BYTES {
                    let reason = match size > MAX_ENTRY_BYTES {
                        true => format!(
                            "the names and shapes of an item's {} columns take {size} bytes, more than {MAX_ENTRY_BYTES}: \
                             use fewer columns",
                            form.columns.len()
                        ),
                        false => format!(
                            "the form of an item takes {cells} bytes, more than {MAX_LISTED_BYTES}: refer to ranges of steps"
                        ),
                    };
                    return Err(Error::InvalidArgument(reason));
                }
                // Check here what the server would refuse, so that the caller gets an InvalidArgument.
                decode_pattern(definition.clone()).map_err(|error| Error::InvalidArgument(error.to_string()))?;
                self.defined += 1;
                *head_bytes += size;
                *bytes += size + cells;
                definitions.push(definition);
                let known = KnownForm { form: form.clone(), number: self.defined, checks: checks(form), used: 0 };
                self.known.entry(address).or_insert(known)
            }
        };
        known.used = self.used;
        self.last = Some((address, known.number, known.checks));
        Ok(known.checks)
    }

    /// The number of a form that was defined.
    pub(super) fn number(&self, form: &Form) -> Option<u32> {
        let address = address(form);
        match self.last {
            Some((last, number, _)) if last == address => Some(number),
            _ => self.known.get(&address).map(|known| known.number),
        }
    }

    /// Releases the least recently used half if there are too many, or as many as a message may name.
    pub(super) fn tidy(&mut self, released: &mut Vec<u32>) {
        if self.known.len() <= KEPT {
            return;
        }
        let mut used = self.known.values().map(|known| known.used).collect::<Vec<_>>();
        let (_, middle, _) = used.select_nth_unstable(KEPT / 2);
        let middle = *middle;
        self.last = None;
        self.known.retain(|address, known| {
            debug_assert!(*address == self::address(&known.form));
            let goes = known.used < middle && released.len() < KEPT;
            released.extend(goes.then_some(known.number));
            !goes
        });
    }
}
