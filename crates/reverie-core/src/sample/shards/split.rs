//! Draws spread over shards by their masses, also where the masses were others when the draws were made.

use super::Shards;
use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

/// How the draws of one round are spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Draws of each shard.
    pub counts: Vec<u64>,
    /// The probability with which each was chosen for a draw.
    pub chances: Vec<f64>,
}

/// What becomes of draws that were spread by masses of before.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// How many of each shard's draws stay; those behind go.
    pub counts: Vec<u64>,
    /// Where those that are missing are made.
    pub again: Vec<u64>,
    /// The probability with which each shard was chosen for a draw, all taken together.
    pub chances: Vec<f64>,
}

impl Shards {
    /// Spreads draws over the shards, each draw by itself: shards are chosen by their mass. `None` where no shard that
    /// can be reached has an item.
    pub fn split(&mut self, draws: u64) -> Option<Split> {
        let chances = self.chances()?;
        Some(Split { counts: spread(&mut self.random, draws, &chances), chances })
    }

    /// Draws were made with the chances of `split`, and the shards told their masses since. Some stay and the others are
    /// made again, so that all of them together are spread as they would be by what the shards are now: a draw of a
    /// shard whose chance went from q down to p stays with the probability p / q, and one that goes is made where the
    /// chance rose, in proportion to by how much. Each draw then is of a shard with just its chance p, by itself. (As
    /// Leviathan et al. 2023 do it for tokens, "Fast inference from transformers via speculative decoding", appendix A.)
    ///
    /// Draws of one shard must be independent of each other: those that go are the last. `None` where no shard that can
    /// be reached has an item.
    pub fn keep(&mut self, split: &Split) -> Option<Kept> {
        let chances = self.chances()?;
        let rose: Vec<f64> = chances.iter().zip(&split.chances).map(|(now, then)| (now - then).max(0.0)).collect();
        let mut counts = split.counts.clone();
        let mut gone = 0;
        for (count, (now, then)) in counts.iter_mut().zip(chances.iter().zip(&split.chances)) {
            if now < then {
                let stays = now / then;
                let left = (0..*count).filter(|_| unit(&mut self.random) < stays).count() as u64;
                gone += *count - left;
                *count = left;
            }
        }
        // By rounding, a chance may fall where none rose.
        let by = if rose.iter().any(|rose| *rose > 0.0) { &rose } else { &chances };
        let again = spread(&mut self.random, gone, by);
        Some(Kept { counts, again, chances })
    }

    /// Draws that the shard, as it is since it began or was reset, counted and nobody was given.
    pub fn discarded(&self, shard: usize) -> u64 {
        self.shards[shard].discarded
    }

    /// A shard made draws that nobody is given: they count as none.
    pub fn discard(&mut self, shard: usize, draws: u64) {
        self.shards[shard].discarded += draws;
    }
}

/// So many choices, each by itself, in proportion to the weights, one of which is above 0.
fn spread(random: &mut Xoshiro256PlusPlus, choices: u64, weights: &[f64]) -> Vec<u64> {
    let mut ends = weights.to_vec();
    for at in 1..ends.len() {
        ends[at] += ends[at - 1];
    }
    let all = ends.last().copied().unwrap_or(0.0);
    let likely = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
    let mut counts = vec![0; weights.len()];
    for _ in 0..choices {
        let point = unit(random) * all;
        // Rounding may put a point on the end of all: then it is the last's that has a chance at all.
        counts[ends.partition_point(|end| *end <= point).min(likely)] += 1;
    }
    counts
}

/// A multiple of 2^-53 in [0, 1).
fn unit(random: &mut Xoshiro256PlusPlus) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (random.next_u64() >> 11) as f64 * STEP
}
