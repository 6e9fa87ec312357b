//! Draws distributed over shards by their masses, also if the masses changed after the draws.

use super::Model;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

/// The part of a shard's mass below which nothing of it is left.
const NOTHING: f64 = 1e-12;

/// The distribution of the draws of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The number of draws of each shard.
    pub counts: Vec<u64>,
    /// The probability of each shard for a draw.
    pub probabilities: Vec<f64>,
}

/// The correction of draws that were distributed by earlier masses.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptDraws {
    /// The number of each shard's draws that are kept; the later ones are discarded.
    pub counts: Vec<u64>,
    /// The number of replacement draws that each shard makes.
    pub again: Vec<u64>,
    /// The probability of each shard for a draw, all draws together.
    pub probabilities: Vec<f64>,
}

impl Model {
    /// Distributes independent draws over the shards by their masses; `None` if no reachable shard has an item.
    pub fn split(&mut self, draws: u64) -> Option<Split> {
        let probabilities = self.probabilities()?;
        Some(Split { counts: spread(&mut self.random, draws, &probabilities), probabilities })
    }

    /// Corrects draws made with the chances of `split`, after the shards reported new masses.
    ///
    /// Some draws are kept and the others are made again, so that all together are distributed by the shards' present
    /// masses: a draw of a shard whose chance fell from q to p is kept with the probability p / q, and a discarded one
    /// is made where the chance rose, in proportion to the rise. Each draw is then of a shard with exactly its chance
    /// p, independently. (Leviathan et al. 2023 do this for tokens, "Fast inference from transformers via speculative
    /// decoding", appendix A.)
    ///
    /// Draws of one shard must be independent of each other: the last are discarded. `None` if no reachable shard has
    /// an item.
    pub fn keep(&mut self, split: &Split) -> Option<KeptDraws> {
        let probabilities = self.probabilities()?;
        let rose: Vec<f64> =
            probabilities.iter().zip(&split.probabilities).map(|(now, then)| (now - then).max(0.0)).collect();
        let mut counts = split.counts.clone();
        let mut gone = 0;
        for (count, (now, then)) in counts.iter_mut().zip(probabilities.iter().zip(&split.probabilities)) {
            if now < then {
                let stays = now / then;
                let left = (0..*count).filter(|_| unit(&mut self.random) < stays).count() as u64;
                gone += *count - left;
                *count = left;
            }
        }
        // By rounding, a chance may fall although none rose.
        let by = if rose.iter().any(|rose| *rose > 0.0) { &rose } else { &probabilities };
        let again = spread(&mut self.random, gone, by);
        Some(KeptDraws { counts, again, probabilities })
    }

    /// Draws without replacement as from one table.
    ///
    /// Returns how many of each shard's first draws are taken, and the shards' chances.
    ///
    /// Each shard made its own draws, `offered` in order: the probability of each among all items of the shard. `None`
    /// if there are fewer than `wanted` in total.
    ///
    /// An item of weight w stands for a clock that rings after a time of the exponential distribution of rate w: the
    /// order in which they ring is that of draws without replacement (Efraimidis and Spirakis 2006, "Weighted random
    /// sampling with a reservoir"), and a shard's next ring comes at the rate of the weight that it has left. So only
    /// the times are random here. Items without weight ring last, all at the same rate.
    pub fn race(&mut self, offered: &[Vec<f64>], wanted: u64) -> Option<Split> {
        let probabilities = self.probabilities()?;
        let mut rings = Vec::with_capacity(offered.iter().map(Vec::len).sum());
        for (shard, (offered, chance)) in offered.iter().zip(&probabilities).enumerate() {
            let zeros = self.shards[shard].here().map_or(0, |tally| tally.mass.zeros);
            let (mut left, mut time, mut last) = (if *chance > 0.0 { 1.0 } else { 0.0 }, 0.0, None);
            for probability in offered {
                // A rest below the rounding error counts as nothing.
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
        Some(Split { counts, probabilities })
    }

    /// Draws of the shard's present incarnation that it counted and no caller received.
    pub fn discarded(&self, shard: usize) -> u64 {
        self.shards[shard].discarded
    }

    /// Counts draws that no caller receives, so that they do not count as samples.
    pub fn discard(&mut self, shard: usize, draws: u64) {
        self.shards[shard].discarded += draws;
    }
}

/// Makes this many independent choices in proportion to the weights, one of which must be above 0.
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
        // Rounding may put a point at the end of all: it then belongs to the last weight above 0.
        counts[ends.partition_point(|end| *end <= point).min(likely)] += 1;
    }
    counts
}

/// A multiple of 2^-53 in [0, 1).
fn unit(random: &mut Xoshiro256PlusPlus) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (random.next_u64() >> 11) as f64 * STEP
}
