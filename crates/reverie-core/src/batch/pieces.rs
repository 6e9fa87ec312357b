//! Pieces of a batch that several threads fill.

use super::output::ArrayBytes;
use std::ops::Range;

/// The bytes of the batch at these places (output, range), in their order. Panics if two of them overlap.
pub(super) fn pieces<'a>(
    places: Vec<(usize, Range<usize>)>,
    out: &'a mut [&mut ArrayBytes],
) -> Vec<&'a mut ArrayBytes> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_unstable_by_key(|index| (places[*index].0, places[*index].1.start, places[*index].1.end));
    let mut found: Vec<&mut ArrayBytes> = places.iter().map(|_| Default::default()).collect();
    let mut columns = out.iter_mut().enumerate();
    let mut rest: (usize, usize, &mut ArrayBytes) = (usize::MAX, 0, &mut []);
    for index in order {
        let (column, place) = &places[index];
        if rest.0 != *column {
            let (_, whole) = columns.find(|(index, _)| index == column).expect("an output of the plan");
            rest = (*column, 0, whole);
        }
        let (_, at, bytes) = rest;
        let (_, bytes) = bytes.split_at_mut(place.start - at);
        let (piece, bytes) = bytes.split_at_mut(place.len());
        rest = (*column, place.end, bytes);
        found[index] = piece;
    }
    found
}
