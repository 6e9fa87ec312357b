//! Windows of drawn items, chosen under the same lock by the table's own random source, so that a seed fixes them.

use super::Table;
use crate::error::{Error, Result};
use crate::sample::{Borders, Draws, Window, Windows, num_steps, overlap, same_columns};
use crate::table::policy::selector::{Pick, Selector};
use smallvec::SmallVec;

/// A request fails after this many draws in a row of items that are too short for a window.
const MOST_SHORT: u32 = 1000;
/// Items beyond the window's steps that are visited for one window: more overlap than this is a mistake.
const MORE_BEHIND: usize = 64;

impl Table {
    /// Like [`Table::draw`], with a window of each item.
    ///
    /// A draw of an item that is too short for a window counts; another draw replaces it, or with [`Windows::once`] it
    /// is skipped. Fails with `Ragged` if only such items are drawn; earlier draws stay in `into`.
    pub fn draw_windows(&mut self, wanted: usize, windows: &Windows, now: u64, into: &mut Draws) -> Result<usize> {
        let consumes = self.options.max_times_sampled > 0;
        if consumes && windows.borders() != Borders::Pad {
            return Err(Error::InvalidArgument(format!(
                "table '{}' gives items away as they are sampled: windows of them need borders=\"pad\"; the others \
                 would pass over items that are then gone",
                self.options.name
            )));
        }
        into.wanted_windows = Some(*windows);
        let (mut made, mut longest) = (0, 0);
        while made < wanted && self.options.limiter.can_sample(&self.counters, 1) {
            let Some(pick) = self.sampler.draw() else { break };
            let window = self.window(pick.slot, windows);
            if let Some(window) = window {
                self.deliver(&[pick], now, into);
                into.windows.push(window);
                into.short = 0;
                made += 1;
                self.hand_out(pick.slot, now, into);
            } else {
                longest = longest.max(self.num_steps(pick.slot));
                self.pass_over(pick, now);
                if windows.is_once() {
                    into.passed += 1;
                    made += 1;
                    continue;
                }
                into.short += 1;
                if into.short >= MOST_SHORT {
                    return Err(self.too_short(windows, longest));
                }
            }
        }
        into.smallest_probability = self.sampler.smallest_probability();
        Ok(made)
    }

    /// Counts a draw that is not returned.
    fn pass_over(&mut self, pick: Pick, now: u64) {
        self.deliver(&[pick], now, &mut Draws::default());
    }

    fn num_steps(&self, slot: u32) -> usize {
        self.slots.slot(slot).item.as_ref().and_then(|item| num_steps(&item.pattern)).unwrap_or(0)
    }

    /// `longest` covers the drawn items only: visiting all items would hold a large table's lock for long.
    fn too_short(&self, windows: &Windows, longest: usize) -> Error {
        let reason = format!(
            "table '{}': none of the last {MOST_SHORT} draws holds a window of {} steps (the longest item drawn \
             has {longest}); ask for shorter windows, write longer items, or pass borders=\"pad\"",
            self.options.name,
            windows.steps()
        );
        Error::Ragged { path: String::new(), reason }
    }

    /// A random window of the slot's item, all equally likely; `None` if the item is too short.
    ///
    /// An item without a time axis gets a window that cannot be gathered, so that the caller gets an error.
    fn window(&mut self, slot: u32, windows: &Windows) -> Option<Window> {
        let item = self.slots.slot(slot).item.as_ref().expect("a picked slot holds an item");
        let Some(n) = num_steps(&item.pattern) else { return Some(Window::default()) };
        let steps = windows.steps();
        match windows.borders() {
            Borders::Drop => {
                let positions = (n + 1).checked_sub(steps).filter(|positions| *positions > 0)?;
                Some(Window { start: self.positions.below(positions) as i64, ..Window::default() })
            }
            Borders::Pad => {
                let start = self.positions.below(n) as i64 - i64::from(windows.burn_in());
                Some(Window { start, ..Window::default() })
            }
            Borders::Cross => self.crossing(slot, n, steps),
        }
    }

    fn crossing(&mut self, slot: u32, n: usize, steps: usize) -> Option<Window> {
        let mut behind: SmallVec<[(u32, usize, usize); 4]> = SmallVec::new();
        let item_of = |slot: u32| self.slots.slot(slot).item.as_ref().expect("a chain is of present items");
        // `at` follows the chain; `last` is the item that reaches furthest. An item within another does not become
        // `last`.
        let (mut at, mut last, mut available) = (slot, slot, n);
        // As many steps as the last position needs.
        for _ in 0..steps + MORE_BEHIND {
            if available >= n + steps - 1 {
                break;
            }
            let Some(next) = self.lineage.behind(at, item_of(at).stream) else { break };
            let (before, item) = (item_of(last), item_of(next));
            let Some(more) = num_steps(&item.pattern).filter(|_| same_columns(before, item)) else { break };
            let known = overlap(before, item);
            at = next;
            if more > known {
                behind.push((next, known, more));
                available += more - known;
                last = next;
            }
        }
        let positions = (available + 1).checked_sub(steps).filter(|positions| *positions > 0)?.min(n);
        let start = self.positions.below(positions);
        let mut window = Window { start: start as i64, ..Window::default() };
        let mut covered = n - start;
        for (slot, first, more) in behind {
            if covered >= steps {
                break;
            }
            let item = self.slots.slot(slot).item.clone().expect("a chain is of present items");
            window.behind.push((item, first as u32));
            covered += more - first;
        }
        Some(window)
    }
}
