//! Draws spread over shards by their masses, also where the masses were others when the draws were made.

use super::Shards;
use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The part of a shard's mass below which nothing is left of it.
const NOTHING: f64 = 1e-12;

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

    /// Draws without replacement as from one table. Each shard made its own, `offered` in order: the probability of each
    /// among all items of the shard. How many of the first of each are taken, and the chances of the shards; `None` where
    /// there are fewer than `wanted` in all.
    ///
    /// An item of weight w stands for a clock that rings after a time of the exponential distribution of rate w: the order
    /// in which they ring is that of draws without replacement (Efraimidis and Spirakis 2006, "Weighted random sampling
    /// with a reservoir"), and a shard's next ring comes at the rate of all that it has left. So only the times are left to
    /// chance here. Items that weigh nothing ring last, each as soon as any other.
    pub fn race(&mut self, offered: &[Vec<f64>], wanted: u64) -> Option<Split> {
        let chances = self.chances()?;
        let mut rings = Vec::with_capacity(offered.iter().map(Vec::len).sum());
        for (shard, (offered, chance)) in offered.iter().zip(&chances).enumerate() {
            let zeros = self.shards[shard].here().map_or(0, |tally| tally.mass.zeros);
            let (mut left, mut time, mut last) = (if *chance > 0.0 { 1.0 } else { 0.0 }, 0.0, None);
            for probability in offered {
                // What is left by rounding is nothing.
                if last.is_none() && left < NOTHING {
                    (last, time) = (Some(zeros.max(1)), 0.0);
                }
                let rate = match &mut last {
                    // At least the item itself is left.
                    None => chance * f64::max(left, *probability),
                    Some(zeros) => std::mem::replace(zeros, (*zeros - 1).max(1)) as f64,
                };
                time -= (1.0 - unit(&mut self.random)).ln() / rate;
                left -= probability;
                rings.push((last.is_some(), time, shard));
            }
        }
        if (rings.len() as u64) < wanted {
            return None;
        }
        rings.sort_by(|(last, time, _), (other_last, other, _)| last.cmp(other_last).then(time.total_cmp(other)));
        let mut counts = vec![0; offered.len()];
        rings.iter().take(wanted as usize).for_each(|(_, _, shard)| counts[*shard] += 1);
        Some(Split { counts, chances })
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
