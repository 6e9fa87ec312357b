//! The number of cases that a property tries.

/// All on CI, and a quarter at a desk, where a few properties would take most of the time of a run.
pub fn cases(on_ci: u32) -> u32 {
    if std::env::var_os("CI").is_some() { on_ci } else { on_ci / 4 }
}
