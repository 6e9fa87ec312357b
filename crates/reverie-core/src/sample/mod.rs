//! **Sample**: the draws.
