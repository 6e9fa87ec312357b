//! **Append**: what a writer does.
