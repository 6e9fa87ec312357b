//! The order of present items within each stream of steps: insertion order.

use super::multiplicative_hasher::MultiplicativeHasher;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

const NONE: u32 = u32::MAX;

/// The neighbours of a slot's item.
#[derive(Clone, Copy, Debug)]
struct StreamLink {
    before: u32,
    behind: u32,
}

/// The chains of all streams. When an item leaves, its neighbours in the chain are linked to each other.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// The links by slot; meaningless if the slot is free or its item has no stream.
    links: Vec<StreamLink>,
    /// The newest item of each stream that has items.
    newest: HashMap<u32, u32, BuildHasherDefault<MultiplicativeHasher>>,
}

impl Lineage {
    /// Appends an item behind all others of its stream. 0 means no stream.
    pub(super) fn insert(&mut self, slot: u32, stream: u32) {
        if stream == 0 {
            return;
        }
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, StreamLink { before: NONE, behind: NONE });
        }
        let before = self.newest.insert(stream, slot).unwrap_or(NONE);
        self.links[slot as usize] = StreamLink { before, behind: NONE };
        if before != NONE {
            self.links[before as usize].behind = slot;
        }
    }

    /// Puts back an item that left; `age` is a slot's position in the order of insertion.
    pub(super) fn put_back(&mut self, slot: u32, stream: u32, age: impl Fn(u32) -> u64) {
        if stream == 0 {
            return;
        }
        let own = age(slot);
        let (mut before, mut behind) = (self.newest.get(&stream).copied().unwrap_or(NONE), NONE);
        while before != NONE && age(before) > own {
            (before, behind) = (self.links[before as usize].before, before);
        }
        self.links[slot as usize] = StreamLink { before, behind };
        if before != NONE {
            self.links[before as usize].behind = slot;
        }
        match behind {
            NONE => _ = self.newest.insert(stream, slot),
            behind => self.links[behind as usize].before = slot,
        }
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, slot: u32, stream: u32) {
        if stream == 0 {
            return;
        }
        let StreamLink { before, behind } = self.links[slot as usize];
        if before != NONE {
            self.links[before as usize].behind = behind;
        }
        match (behind, before) {
            (NONE, NONE) => _ = self.newest.remove(&stream),
            (NONE, before) => _ = self.newest.insert(stream, before),
            (behind, before) => self.links[behind as usize].before = before,
        }
    }

    /// The item that was inserted before the slot's item, in the same stream.
    pub(super) fn before(&self, slot: u32, stream: u32) -> Option<u32> {
        self.link(slot, stream, |link| link.before)
    }

    /// The item that was inserted after it.
    pub(super) fn behind(&self, slot: u32, stream: u32) -> Option<u32> {
        self.link(slot, stream, |link| link.behind)
    }

    fn link(&self, slot: u32, stream: u32, which: impl Fn(&StreamLink) -> u32) -> Option<u32> {
        let found = self.links.get(slot as usize).filter(|_| stream != 0).map(which)?;
        (found != NONE).then_some(found)
    }

    /// Removes all items.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_chains_are_what_came_in_and_did_not_leave(steps in prop::collection::vec((0_u32..4, 0_u32..12), 0..120)) {
            let (mut lineage, mut present) = (Lineage::default(), Vec::<(u32, u32)>::new());
            for (stream, slot) in steps {
                match present.iter().position(|(taken, _)| *taken == slot) {
                    Some(at) => {
                        let (slot, stream) = present.remove(at);
                        lineage.remove(slot, stream);
                    }
                    None => {
                        present.push((slot, stream));
                        lineage.insert(slot, stream);
                    }
                }
                for stream in 0..4 {
                    let chain: Vec<u32> = present.iter().filter(|(_, of)| *of == stream).map(|(slot, _)| *slot).collect();
                    for (at, slot) in chain.iter().enumerate() {
                        let known = stream != 0;
                        let want = |at: Option<usize>| at.and_then(|at| chain.get(at)).filter(|_| known).copied();
                        prop_assert_eq!(lineage.before(*slot, stream), want(at.checked_sub(1)));
                        prop_assert_eq!(lineage.behind(*slot, stream), want(Some(at + 1)));
                    }
                }
                let streams = present.iter().map(|(_, stream)| *stream).filter(|stream| *stream != 0);
                let streams = streams.collect::<std::collections::HashSet<_>>().len();
                prop_assert_eq!(lineage.newest.len(), streams, "nothing is kept of a stream without items");
            }
        }
    }
}
