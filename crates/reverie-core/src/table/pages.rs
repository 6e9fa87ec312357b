//! Pages that a cut shares and that are changed in place while none does.
//!
//! `Arc::make_mut` asks that of the counts, which takes an atomic exchange for every change: a twelfth of an insert into
//! a full table. A number for each page says the same: nobody but a cut ever takes a reference.

use std::sync::Arc;

/// A list of pages. Not to be cloned: references to its pages come from [`Pages::share`] alone.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Arc<T>>,
    /// For each page, the cut after which it was seen that nobody else holds it.
    owned_since: Vec<u64>,
    /// How often the pages were shared.
    cuts: u64,
}

impl<T: Clone> Pages<T> {
    pub(super) fn new() -> Self {
        Self { pages: Vec::new(), owned_since: Vec::new(), cuts: 0 }
    }

    pub(super) fn push(&mut self, page: T) {
        self.pages.push(Arc::new(page));
        self.owned_since.push(self.cuts);
    }

    #[inline]
    pub(super) fn get(&self, page: usize) -> &T {
        &self.pages[page]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().map(|page| &**page)
    }

    /// The page, to be changed: copied first where a cut still holds it.
    #[inline]
    pub(super) fn own(&mut self, page: usize) -> &mut T {
        if self.owned_since[page] != self.cuts {
            self.copy_shared(page);
        }
        // SAFETY: this is the page's only reference. It was when `owned_since` was set (by `push`, which made it, or by
        // `copy_shared`), and since then none was taken: that is done by `share`, which counts, and by `into_shared`,
        // which takes the list. Weak references there are none. And `&mut self` is borrowed as long as the page is.
        unsafe { &mut *Arc::as_ptr(&self.pages[page]).cast_mut() }
    }

    /// Apart, since a page is copied by way of the stack, which a function makes room for whether it copies or not.
    #[cold]
    #[inline(never)]
    fn copy_shared(&mut self, page: usize) {
        Arc::make_mut(&mut self.pages[page]);
        self.owned_since[page] = self.cuts;
    }

    /// All pages as they are now, whatever becomes of them here: one reference each.
    pub(super) fn share(&mut self) -> Vec<Arc<T>> {
        self.cuts += 1;
        self.pages.clone()
    }

    /// All pages, which are nobody's here any more.
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
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u32>().prop_map(Step::Push),
            (0_usize..8, any::<u32>()).prop_map(|(page, to)| Step::Change(page, to)),
            (0_usize..8, any::<u32>()).prop_map(|(page, to)| Step::Change(page, to)),
            Just(Step::Cut),
            (0_usize..4).prop_map(Step::Drop),
        ]
    }

    type Seen = (Vec<Arc<Vec<u32>>>, Vec<Vec<u32>>);

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_cut_keeps_what_it_saw_and_the_pages_go_on(steps in prop::collection::vec(step(), 0..80)) {
            let (mut pages, mut model) = (Pages::new(), Vec::<Vec<u32>>::new());
            let mut cuts: Vec<Seen> = Vec::new();
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
}
