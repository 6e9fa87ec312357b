//! Pages that are changed in place unless a cut shares them.
//!
//! `Arc::make_mut` would check this with the reference counts, which takes an atomic exchange for every change: a
//! twelfth of an insert into a full table. A counter for each page gives the same answer, because only a cut takes a
//! reference.
//!
//! A copied page goes to a **spare page** if there is one: memory that the thread about to make a cut touched without
//! holding the lock. A draw of 256 right after a cut copies 250 pages; in untouched memory that is 1,500 page faults
//! under the lock.

use std::sync::Arc;

/// A list of pages. Must not be cloned: only [`Pages::share`] hands out references to its pages.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Arc<T>>,
    /// The number of cuts when each page was last known to have one owner.
    owned_since: Vec<u64>,
    /// The number of times that the pages were shared.
    cuts: u64,
    /// Destinations of copies: pages with no other owner; their content is ignored.
    spares: Vec<Arc<T>>,
}

impl<T: Clone> Pages<T> {
    pub(super) fn new() -> Self {
        Self { pages: Vec::new(), owned_since: Vec::new(), cuts: 0, spares: Vec::new() }
    }

    pub(super) fn push(&mut self, page: T) {
        self.pages.push(Arc::new(page));
        self.owned_since.push(self.cuts);
    }

    #[inline]
    pub(super) fn get(&self, page: usize) -> &T {
        &self.pages[page]
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().map(|page| &**page)
    }

    /// The page, mutable; copied first if a cut still holds it.
    #[inline]
    pub(super) fn own(&mut self, page: usize) -> &mut T {
        if self.owned_since[page] != self.cuts {
            self.copy_shared(page);
        }
        // SAFETY: this is the page's only reference. It was when `owned_since` was set (by `push`, which made it, or by
        // `copy_shared`, which checks), and since then no reference was taken: only `share` takes one, which counts,
        // and `into_shared`, which takes the list. There are no weak references. `&mut self` is borrowed as long as the
        // page is.
        unsafe { &mut *Arc::as_ptr(&self.pages[page]).cast_mut() }
    }

    /// A separate function: a copy goes through the stack, and a function reserves that stack space on every call.
    #[cold]
    #[inline(never)]
    fn copy_shared(&mut self, page: usize) {
        let shared = &mut self.pages[page];
        if Arc::get_mut(shared).is_none() {
            match self.spares.pop() {
                Some(mut spare) => {
                    Arc::get_mut(&mut spare).expect("a spare page has one holder").clone_from(shared);
                    *shared = spare;
                }
                None => _ = Arc::make_mut(shared),
            }
        }
        self.owned_since[page] = self.cuts;
    }

    /// The number of pages.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Replaces the spare pages and returns the old ones, which the caller drops. Nothing else may hold any of them.
    pub(super) fn exchange_spares(&mut self, spares: Vec<Arc<T>>) -> Vec<Arc<T>> {
        std::mem::replace(&mut self.spares, spares)
    }

    /// References to all pages as they are now; later changes do not affect them.
    pub(super) fn share(&mut self) -> Vec<Arc<T>> {
        self.cuts += 1;
        self.pages.clone()
    }

    /// All pages, taken out of the list.
    pub(super) fn into_shared(self) -> Vec<Arc<T>> {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Change(usize, u32),
        Cut,
        Drop(usize),
        Spare(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u32>().prop_map(Step::Push),
            (0_usize..8, any::<u32>()).prop_map(|(page, to)| Step::Change(page, to)),
            (0_usize..8, any::<u32>()).prop_map(|(page, to)| Step::Change(page, to)),
            Just(Step::Cut),
            (0_usize..4).prop_map(Step::Drop),
            (0_usize..4).prop_map(Step::Spare),
        ]
    }

    type CutContents = (Vec<Arc<Vec<u32>>>, Vec<Vec<u32>>);

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_cut_keeps_what_it_saw_and_the_pages_go_on(steps in prop::collection::vec(step(), 0..80)) {
            let (mut pages, mut model) = (Pages::new(), Vec::<Vec<u32>>::new());
            let mut cuts: Vec<CutContents> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(first) => {
                        pages.push(vec![first]);
                        model.push(vec![first]);
                    }
                    Step::Change(page, to) if page < model.len() => {
                        let own = pages.own(page);
                        own[0] = to;
                        own.push(to);
                        model[page][0] = to;
                        model[page].push(to);
                    }
                    Step::Cut => cuts.push((pages.share(), model.clone())),
                    Step::Drop(cut) if cut < cuts.len() => drop(cuts.swap_remove(cut)),
                    Step::Spare(count) => {
                        drop(pages.exchange_spares((0..count).map(|_| Arc::new(vec![u32::MAX; 3])).collect()));
                    }
                    _ => {}
                }
                prop_assert!(pages.iter().eq(&model));
                for (cut, seen) in &cuts {
                    prop_assert!(cut.iter().map(|page| &**page).eq(seen));
                }
            }
            let left = pages.into_shared();
            prop_assert!(left.iter().map(|page| &**page).eq(&model));
        }
    }

    #[test]
    fn a_page_is_copied_once_for_a_cut_and_not_again() {
        let mut pages = Pages::new();
        pages.push(0_u64);
        let place = |pages: &Pages<u64>| std::ptr::from_ref(pages.get(0)).addr();
        let first = place(&pages);
        *pages.own(0) = 1;
        assert_eq!(place(&pages), first, "no cut holds it");
        let cut = pages.share();
        *pages.own(0) = 2;
        let second = place(&pages);
        assert_ne!(second, first);
        *pages.own(0) = 3;
        assert_eq!(place(&pages), second);
        assert_eq!((*cut[0], *pages.get(0)), (1, 3));
    }

    #[test]
    fn copies_go_to_spare_pages_while_there_are_some() {
        let mut pages = Pages::new();
        (0..3_u64).for_each(|page| pages.push(page));
        let spares: Vec<Arc<u64>> = (0..2).map(|_| Arc::new(u64::MAX)).collect();
        let touched: Vec<*const u64> = spares.iter().map(Arc::as_ptr).collect();
        assert!(pages.exchange_spares(spares).is_empty());
        *pages.own(0) += 10;
        assert_eq!(pages.spares.len(), 2, "no cut holds it: nothing is copied");
        let cut = pages.share();
        (0..3).for_each(|page| *pages.own(page) += 100);
        let spared: Vec<bool> = (0..3).map(|page| touched.contains(&std::ptr::from_ref(pages.get(page)))).collect();
        assert_eq!(spared, [true, true, false]);
        assert!(pages.iter().eq(&[110, 101, 102]) && cut.iter().map(|page| **page).eq([10, 1, 2]));
        drop(cut);
        let again = pages.share();
        drop(again);
        pages.exchange_spares(vec![Arc::new(0)]);
        *pages.own(1) += 1;
        assert_eq!(pages.exchange_spares(Vec::new()).len(), 1, "the cut is gone: what is left is given back");
    }
}
