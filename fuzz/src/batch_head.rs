//! The head of a batch as a client reads it: refused, or arrays that can be laid out one behind another. The first byte of an
//! input is the number of draws.

use prost::Message;
use reverie_core::batch::BatchLayout;
use reverie_net::convert::batch::{decode_head, encode_head};
use reverie_net::proto;

/// Panics if it does not hold for this input. True if arrays were laid out.
pub fn check(input: &[u8]) -> bool {
    let Some((draws, bytes)) = input.split_first() else { return false };
    let Ok(message) = proto::BatchHead::decode(bytes) else { return false };
    let Ok(head) = decode_head(message) else { return false };
    let message = encode_head(&head.outputs, &head.structure, head.num_columns, head.timestep);
    let again = decode_head(message).expect("it was just encoded");
    assert_eq!((&again.outputs, &again.structure), (&head.outputs, &head.structure));
    let Ok(layout) = BatchLayout::new(usize::from(*draws), &head.outputs) else { return false };
    let mut end = layout.info.iter().map(|range| range.end).max().unwrap_or(0);
    for (range, output) in layout.outputs.iter().zip(&head.outputs) {
        assert!(range.start >= end && range.end <= layout.size_bytes && range.len() == output.bytes());
        end = range.end;
    }
    true
}
