//! Importance weights of draws.

use crate::error::{Error, Result};
use crate::power::Power;

/// Importance weights `(N * P) ** -beta`, divided by the largest, so that none is above 1.
///
/// See Schaul et al. 2016, section 3.4. Without `bound` the largest is that of these draws, and N is `table_size` of
/// each draw; with it, that of an item whose probability is `bound`, and N, the same for all, cancels out. `beta` is in
/// [0, 1].
///
/// `InvalidArgument` if an entry has no probability because it was not drawn.
pub fn weights(
    probabilities: &[f64],
    table_size: impl Fn(usize) -> f64,
    beta: f64,
    bound: Option<f64>,
) -> Result<Vec<f64>> {
    let mut masses = match bound {
        // N is the same for a whole batch except for draws that removed items: keep it under the exponent.
        None => probabilities.iter().enumerate().map(|(draw, probability)| probability * table_size(draw)).collect(),
        Some(_) => probabilities.to_vec(),
    };
    let smallest =
        masses.iter().fold(bound.unwrap_or(f64::INFINITY), |least, mass| if *mass < least { *mass } else { least });
    let drawn = smallest > 0.0 && !masses.iter().any(|mass| mass.is_nan());
    if !drawn {
        return Err(Error::InvalidArgument(
            "these items were not drawn (client.get): they have no probability and no weight".to_owned(),
        ));
    }
    masses.iter_mut().for_each(|mass| *mass = smallest / *mass);
    Power::new(beta).of_each(&mut masses);
    Ok(masses)
}
