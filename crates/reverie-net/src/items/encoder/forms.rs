//! The forms that the server knows: if there are too many, the least recently used are released.

use super::super::{MAX_FORM_BYTES, looks};
use super::known::ByAddress;
use crate::convert::item::{decode_pattern, encode_pattern};
use crate::proto;
use prost::Message;
use reverie_core::item::Form;
use reverie_core::{Error, Result};

/// Forms that the server keeps for a connection at most.
const KEPT: usize = 4096;

struct Known {
    /// Held so that its address is not reused.
    form: Form,
    number: u32,
    looks: u64,
    used: u64,
}

/// The forms by their address.
#[derive(Default)]
pub(super) struct Forms {
    known: ByAddress<Known>,
    /// The number of defined forms, and of uses of forms.
    defined: u32,
    used: u64,
    /// The form of the item before: address, number, looks.
    last: Option<(usize, u32, u64)>,
}

fn address(form: &Form) -> usize {
    std::ptr::from_ref(&**form).addr()
}

impl Forms {
    /// Defines a new form and counts its bytes; returns the cost of checking its cells.
    pub(super) fn define(
        &mut self,
        form: &Form,
        definitions: &mut Vec<proto::PatternDef>,
        bytes: &mut usize,
    ) -> Result<u64> {
        let address = address(form);
        if let Some((_, _, looks)) = self.last.filter(|(last, ..)| *last == address) {
            return Ok(looks);
        }
        self.used += 1;
        let known = match self.known.get_mut(&address) {
            Some(known) => known,
            None => {
                let definition = encode_pattern(self.defined + 1, form);
                let size = definition.encoded_len();
                if size > MAX_FORM_BYTES {
                    return Err(Error::InvalidArgument(format!(
                        "the form of an item takes {size} bytes, more than {MAX_FORM_BYTES}: refer to ranges of steps"
                    )));
                }
                // Check here what the server would refuse, so that the caller gets an InvalidArgument.
                decode_pattern(definition.clone()).map_err(|error| Error::InvalidArgument(error.to_string()))?;
                self.defined += 1;
                *bytes += size;
                definitions.push(definition);
                let known = Known { form: form.clone(), number: self.defined, looks: looks(form), used: 0 };
                self.known.entry(address).or_insert(known)
            }
        };
        known.used = self.used;
        self.last = Some((address, known.number, known.looks));
        Ok(known.looks)
    }

    /// The number of a form that was defined.
    pub(super) fn number(&self, form: &Form) -> Option<u32> {
        let address = address(form);
        match self.last {
            Some((last, number, _)) if last == address => Some(number),
            _ => self.known.get(&address).map(|known| known.number),
        }
    }

    /// Releases the least recently used half if there are too many.
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
            if known.used < middle {
                released.push(known.number);
            }
            known.used >= middle
        });
    }
}
