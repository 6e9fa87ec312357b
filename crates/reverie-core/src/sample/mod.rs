//! **Sample**: the draws: the items, their probabilities, and the table's figures at the draw.

mod drawn;
mod draws;
mod gathered;
mod lease;
mod mixture;
mod prefetch;
mod source;
mod weights;
mod windows;

pub use drawn::{Drawn, Sampled};
pub use draws::Draws;
pub use gathered::{Allocate, ArrayMemory, Description, Gathered};
pub use lease::{Lease, Lender, Tenure};
pub use mixture::{Mixture, Share};
pub use prefetch::{Prefetcher, Schedule};
pub use source::{MAX_SAMPLES, SampleRequest, Source};
pub use weights::weights;
pub use windows::{Borders, MAX_WINDOW, Window, Windows};
pub(crate) use windows::{Segment, num_steps, overlap, same_columns, segments};
