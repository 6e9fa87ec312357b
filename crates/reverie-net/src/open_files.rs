//! File descriptors for connections and for a server's files, within the system's limit for this process.

/// Descriptors that a server needs in addition to its connections, at least: for checkpoints, and for its program.
const SPARE: u64 = 64;
/// The part of the limit that connections leave, if that is more: the files of a journal and of a disk tier grow.
const PART_LEFT: u64 = 8;
/// The most open files that a server asks for: usual hard limits, which some systems set to any number. macOS refuses
/// more.
const MOST_FILES: u64 = if cfg!(target_os = "macos") { 10_240 } else { 1 << 19 };
/// The assumed number of open files if it cannot be read.
const UNKNOWN: u64 = 64;

/// The connections that the limit of open files allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConnectionCapacity {
    /// Clients of each transport.
    pub(crate) max_connections: usize,
    /// Pending connections of each transport.
    pub(crate) max_pending_connections: usize,
    /// The limit, if it bounds them.
    pub(crate) bounded_by: Option<u64>,
}

/// Raises the soft limit of open files to the hard one, for a server with a journal or a disk tier.
///
/// Their files stay open and grow with what they hold, so that no number is enough for all; call it before they are read.
pub fn raise_for_files() {
    raise_limit(MOST_FILES);
}

/// Raises the soft limit of open files as far as these connections need, for each transport, and the hard limit allows.
pub(crate) fn make_room(max_connections: usize, max_pending_connections: usize) -> ConnectionCapacity {
    let folders = ["/proc/self/fd", "/dev/fd"];
    let found = folders.iter().find_map(|folder| std::fs::read_dir(folder).ok());
    let open = found.map_or(UNKNOWN, |files| files.count() as u64);
    let needed = needed(open, max_connections, max_pending_connections);
    let have = raise_limit(needed.saturating_add(needed.div_ceil(PART_LEFT - 1)));
    room(have, open, max_connections, max_pending_connections)
}

/// The limit of open files, raised to `wanted` as far as it can be.
#[cfg(unix)]
fn raise_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let have = most(current);
    if have >= wanted || have >= most(maximum) {
        return have;
    }
    let raised = wanted.min(most(maximum));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "the limit of {have} open files cannot be raised to {raised}");
            have
        }
    }
}

/// No limit: on Windows a socket is not a file.
#[cfg(not(unix))]
fn raise_limit(_wanted: u64) -> u64 {
    u64::MAX
}

fn needed(open: u64, max_connections: usize, max_pending_connections: usize) -> u64 {
    let each = (max_connections as u64).saturating_add(max_pending_connections as u64);
    each.saturating_mul(2).saturating_add(open + SPARE)
}

fn room(have: u64, open: u64, max_connections: usize, max_pending_connections: usize) -> ConnectionCapacity {
    let spare = SPARE.max(have / PART_LEFT);
    if needed(open, max_connections, max_pending_connections) - SPARE <= have.saturating_sub(spare) {
        return ConnectionCapacity { max_connections, max_pending_connections, bounded_by: None };
    }
    let each = (have.saturating_sub(open + spare) / 2).max(2) as usize;
    // Most of the room is for clients.
    let max_pending_connections = max_pending_connections.min((each / 8).max(1));
    ConnectionCapacity {
        max_connections: max_connections.min(each - max_pending_connections),
        max_pending_connections,
        bounded_by: Some(have),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_within_the_open_files_and_leave_some_for_the_rest() {
        assert_eq!(
            room(10_000, 20, 4096, 256),
            ConnectionCapacity { max_connections: 4096, max_pending_connections: 256, bounded_by: None }
        );
        for have in [100, 256, 1024, 4096, 8000] {
            let ConnectionCapacity { max_connections, max_pending_connections, bounded_by } = room(have, 20, 4096, 256);
            assert_eq!(bounded_by, Some(have));
            assert!(needed(20, max_connections, max_pending_connections) <= have, "{have}");
            assert!(max_connections >= 4 * max_pending_connections && max_pending_connections >= 1, "{have}");
        }
        let full = room(10_000, 20, 6000, 256);
        assert!(2 * (full.max_connections + full.max_pending_connections) <= 8750, "an eighth is for files that grow");
        let none = room(10, 20, 4096, 256);
        assert_eq!((none.max_connections, none.max_pending_connections), (1, 1), "a server that starts takes one");
    }
    #[cfg(unix)]
    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_before_the_files_of_a_server_are_read() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let maximum = getrlimit(Resource::Nofile).maximum;
        let most = maximum.unwrap_or(u64::MAX).min(MOST_FILES);
        setrlimit(Resource::Nofile, Rlimit { current: Some(most.min(1024)), maximum }).unwrap();
        raise_for_files();
        let raised = getrlimit(Resource::Nofile);
        assert_eq!(raised.maximum, maximum);
        assert!(raised.current.is_none_or(|current| current >= most), "{raised:?}");
    }
}
