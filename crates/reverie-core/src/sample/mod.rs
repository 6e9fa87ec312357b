//! **Sample**: the draws: the items, their probabilities, and the table's figures at the draw.

mod drawn_batch;
mod draws;
mod gathered_batch;
mod lease;
mod mixture;
mod prefetch;
mod source;
mod weights;
mod windows;

pub use drawn_batch::{DrawnBatch, SampleOutcome};
pub use draws::Draws;
pub use gathered_batch::{ArrayAllocator, ArrayMemory, Description, GatheredBatch};
pub use lease::{Lease, LeaseState, Lender};
pub use mixture::{Mixture, Share};
pub use prefetch::{Prefetcher, Schedule};
pub use source::{MAX_SAMPLES, SampleRequest, Source};
pub use weights::weights;
pub use windows::{Borders, MAX_WINDOW, Window, Windows};
pub(crate) use windows::{Segment, num_steps, overlap, same_columns, segments};
