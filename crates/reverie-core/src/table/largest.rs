//! The largest priority where no selector knows it: looked for when it is first asked for, and followed from then on.

/// The largest priority and how many items have it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Largest {
    /// `None` while nobody asked, and once the last item that had it is gone.
    known: Option<(f64, usize)>,
}

impl Largest {
    /// Of these priorities, where it is not known already; 1 without any.
    pub(super) fn of(&mut self, priorities: impl Iterator<Item = f64>) -> f64 {
        if self.known.is_none() {
            self.known =
                priorities.fold(None, |known, priority| Some(joined(known.unwrap_or((priority, 0)), priority)));
        }
        self.known.map_or(1.0, |(largest, _)| largest)
    }

    /// An item has come in, or has another priority now.
    #[inline]
    pub(super) fn add(&mut self, priority: f64) {
        self.known = self.known.map(|known| joined(known, priority));
    }

    /// An item has gone, or had this priority.
    #[inline]
    pub(super) fn remove(&mut self, priority: f64) {
        if let Some((largest, count)) = self.known {
            let count = count - usize::from(priority == largest);
            self.known = (count > 0).then_some((largest, count));
        }
    }
}

fn joined((largest, count): (f64, usize), priority: f64) -> (f64, usize) {
    match priority > largest {
        true => (priority, 1),
        false => (largest, count + usize::from(priority == largest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_at_all_items_only_where_the_last_of_the_largest_is_gone() {
        let mut largest = Largest::default();
        let looked = |largest: &mut Largest, all: &[f64]| {
            let mut looks = 0;
            let found = largest.of(all.iter().copied().inspect(|_| looks += 1));
            (found, looks)
        };
        assert_eq!(looked(&mut largest, &[]), (1.0, 0));
        assert_eq!(looked(&mut largest, &[2.0, 5.0, 5.0]), (5.0, 3));
        largest.remove(5.0);
        largest.add(3.0);
        assert_eq!(looked(&mut largest, &[2.0, 5.0, 3.0]), (5.0, 0));
        largest.add(7.0);
        assert_eq!(looked(&mut largest, &[2.0, 5.0, 3.0, 7.0]), (7.0, 0));
        largest.remove(7.0);
        assert_eq!(looked(&mut largest, &[2.0, 5.0, 3.0]), (5.0, 3));
    }
}
