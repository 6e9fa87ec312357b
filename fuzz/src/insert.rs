//! Insert messages of one connection: they are refused, or bring items that can be gathered, within what may be held.
//! An input is frames: the lengths of a message and of its bulk bytes (2 bytes each, little-endian), and both.

use bytes::Bytes;
use prost::Message;
use reverie_core::batch::{BatchOptions, plan};
use reverie_core::chunk::Meter;
use reverie_core::item::Item;
use reverie_net::items::{Decoder, DecoderLimits};
use reverie_net::proto;
use std::mem::MaybeUninit;
use std::sync::Arc;

const LIMITS: DecoderLimits = DecoderLimits { max_chunk_bytes: 1 << 16, max_named: 64, max_held_bytes: 1 << 20 };

/// Gathers a batch of one item. False if it is refused.
fn gather(item: &Item) -> bool {
    let items = std::slice::from_ref(item);
    let Ok(plan) = plan(items, &BatchOptions::default()) else { return false };
    if plan.outputs.iter().map(|output| output.bytes() as u64).sum::<u64>() > 1 << 22 {
        return false;
    }
    let mut arrays: Vec<Vec<MaybeUninit<u8>>> =
        plan.outputs.iter().map(|output| vec![MaybeUninit::uninit(); output.bytes()]).collect();
    let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(Vec::as_mut_slice).collect();
    // A packed form that does not unpack shows here, as an error.
    plan.gather(items, &mut out).is_ok()
}

/// Panics if it does not hold for this input. True if an insert was taken whose items were gathered.
pub fn check(input: &[u8]) -> bool {
    let meter = Arc::new(Meter::new());
    let mut decoder = Decoder::new(Arc::clone(&meter), LIMITS, Arc::default());
    let (mut rest, mut taken) = (input, false);
    while let Some((lengths, after)) = rest.split_first_chunk::<4>() {
        let [message, bulk] = [[lengths[0], lengths[1]], [lengths[2], lengths[3]]].map(u16::from_le_bytes);
        let Some((message, after)) = after.split_at_checked(usize::from(message)) else { return taken };
        let Some((bulk, after)) = after.split_at_checked(usize::from(bulk)) else { return taken };
        rest = after;
        let Ok(message) = proto::Insert::decode(message) else { return taken };
        let Ok(arrived) = decoder.insert(message, &Bytes::copy_from_slice(bulk)) else { return taken };
        arrived.iter().flat_map(|arrived| &arrived.items).for_each(|(item, _)| taken |= gather(item));
        drop(arrived);
        assert!(meter.live_bytes() <= LIMITS.max_held_bytes + (LIMITS.max_chunk_bytes << 1));
    }
    taken
}
