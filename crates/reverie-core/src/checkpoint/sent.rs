//! Inserts that may be retried, as bytes.

use super::bytes::{Bytes, Decoded, Reader};
use crate::item::Key;
use crate::table::{Arrivals, Sender};

pub(crate) fn put_sender(out: &mut Bytes, (sender, arrivals): &(Sender, Arrivals)) {
    out.0.extend_from_slice(sender);
    out.all(arrivals, |out, (number, keys)| {
        out.u64(*number);
        out.all(keys, |out, key| out.u64(key.get() as u64));
    });
}

pub(crate) fn name(from: &mut Reader<'_>) -> Decoded<Sender> {
    let bytes = from.take(size_of::<Sender>())?;
    Ok(bytes.try_into().expect("so many were taken"))
}

pub(crate) fn sender(from: &mut Reader<'_>) -> Decoded<(Sender, Arrivals)> {
    let sender = name(from)?;
    let arrivals = from.all(|from| {
        let number = from.u64()?;
        let keys = from.all(Reader::u64)?;
        if keys.iter().any(|key| i64::try_from(*key).is_err()) {
            return Err("a key has more than 63 bits".to_owned());
        }
        Ok((number, keys.into_iter().map(|key| Key::from(key as i64)).collect()))
    })?;
    match arrivals.is_sorted_by(|(one, _), (next, _)| one < next) {
        true => Ok((sender, arrivals)),
        false => Err("the inserts of a sender are unsorted".to_owned()),
    }
}
