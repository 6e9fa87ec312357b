//! The socket's directory, which only its user can enter.

use reverie_core::inherited::ListedDescriptor;
use reverie_core::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names to try: two servers may have the same port and process id in different namespaces.
const NAMES: u32 = 16;
/// Attempts to take the directory's lock: others have it for some milliseconds, while they bind.
const TRIES: u32 = 500;
/// Time between attempts: the system has no wait for the lock that has a deadline.
const BETWEEN: Duration = Duration::from_millis(10);

/// A directory and the socket in it. The socket's file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    directory: PathBuf,
    socket: Option<String>,
}

impl SocketDirectory {
    /// `$XDG_RUNTIME_DIR/reverie-UID`, or `/tmp/reverie-UID`.
    pub(super) fn choose() -> Result<Self> {
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|base| base.is_dir());
        Self::below(&base.unwrap_or_else(|| PathBuf::from("/tmp")))
    }

    pub(super) fn below(base: &Path) -> Result<Self> {
        let directory = base.join(format!("reverie-{}", geteuid().as_raw()));
        let failed = |error: io::Error| {
            Error::InvalidArgument(format!("the directory {} cannot be created: {error}", directory.display()))
        };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(Self { directory, socket: None }),
        }
    }

    /// The socket's path; empty before it is bound.
    pub(super) fn path(&self) -> &str {
        self.socket.as_deref().unwrap_or_default()
    }

    /// Binds a socket for `port`, after removing dead sockets. Blocks while other servers bind, five seconds at most.
    pub(super) fn bind(&mut self, port: u16) -> Result<UnixListener> {
        let refused = |why: &dyn std::fmt::Display| {
            Error::InvalidArgument(format!("the directory {} for the socket: {why}", self.directory.display()))
        };
        // Held until we listen, so that no other server takes our new socket for a dead one.
        let _lock = Lock::take(&self.directory, TRIES).map_err(|error| refused(&error))?;
        clean(&self.directory).map_err(|error| refused(&error))?;
        let process = std::process::id();
        for number in 0..NAMES {
            let name = if number == 0 { format!("{port}-{process}") } else { format!("{port}-{process}-{number}") };
            let path = self.directory.join(name).with_extension("sock");
            let Some(text) = path.to_str().map(str::to_owned) else { return Err(refused(&"its name is not UTF-8")) };
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    self.socket = Some(text);
                    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(|error| refused(&error))?;
                    return Ok(listener);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        Err(refused(&"all names are taken"))
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            // Fails only if another process was faster.
            let _ = fs::remove_file(socket);
        }
    }
}

/// The lock of the directory, until it is dropped: a forked child that has its descriptor does not keep it.
struct Lock {
    _listed: ListedDescriptor,
    directory: OwnedFd,
}

impl Lock {
    /// Opens and locks the directory, if it is a directory that only our user can use. Blocks while servers bind.
    /// `TimedOut` after `tries` tries: a process that is stopped may hold it for ever.
    fn take(directory: &Path, tries: u32) -> io::Result<Self> {
        let directory = open_own(directory)?;
        let lock = Self { _listed: ListedDescriptor::of(&directory), directory };
        for tried in 0..tries {
            if tried > 0 {
                std::thread::sleep(BETWEEN);
            }
            match flock(&lock.directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let seconds = (BETWEEN * tries).as_secs_f32();
        let reason = format!(
            "another process has had its lock for {seconds:.0} s; it may be stopped (SIGSTOP, a debugger): let it go on, or \
             end it"
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without it, a forked child's descriptor would hold the lock.
        let _ = flock(&self.directory, FlockOperation::Unlock);
    }
}

/// Opens the directory, if it is a directory that only our user can use.
fn open_own(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(directory, flags, Mode::empty())?;
    let stat = fstat(&opened)?;
    let others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
    if stat.st_uid != geteuid().as_raw() || others {
        return Err(io::Error::other("others may use it; it must be this user's, with the mode 0700"));
    }
    Ok(opened)
}

/// Removes the sockets of dead servers.
fn clean(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sock") && is_dead(&path) {
            tracing::debug!("{} was left behind by a server that has ended", path.display());
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// True if no process listens. A socket of a slow server is not dead.
fn is_dead(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = SocketAddrUnix::new(path)
        .and_then(|address| connect(&socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?, &address));
    connected == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::super::tests::TemporaryDirectory;
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixStream;

    fn mode(path: impl AsRef<Path>) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_socket_is_its_users_alone_and_gone_with_its_server() {
        let base = TemporaryDirectory::new("alone");
        let mut place = base.place();
        let _listener = place.bind(8000).unwrap();
        let path = place.path().to_owned();
        assert!(path.ends_with(&format!("8000-{}.sock", std::process::id())));
        assert!(fs::metadata(&path).unwrap().file_type().is_socket());
        assert_eq!((mode(&path), mode(Path::new(&path).parent().unwrap())), (0o600, 0o700));
        drop(place);
        assert_eq!(base.sockets(), 0);
    }

    #[test]
    fn sockets_without_a_listener_are_removed_at_the_next_start_and_used_ones_stay() {
        let base = TemporaryDirectory::new("stale");
        let mut dead = base.place();
        drop(dead.bind(1).unwrap());
        dead.socket = None;
        let mut living = base.place();
        let _listener = living.bind(2).unwrap();
        assert_eq!(base.sockets(), 1, "the dead one is gone, the living there");
        let mut third = base.place();
        let _third = third.bind(3).unwrap();
        assert_eq!(base.sockets(), 2);
        assert!(UnixStream::connect(living.path()).is_ok());
    }

    #[test]
    fn two_servers_of_one_port_and_process_number_have_two_sockets() {
        let base = TemporaryDirectory::new("twins");
        let (mut one, mut other) = (base.place(), base.place());
        let _listeners = (one.bind(7).unwrap(), other.bind(7).unwrap());
        assert_ne!(one.path(), other.path());
        drop(other);
        assert!(UnixStream::connect(one.path()).is_ok());
    }

    #[test]
    fn a_forked_child_does_not_keep_the_lock_of_the_directory() {
        let base = TemporaryDirectory::new("locked");
        let place = base.place();
        let held = Lock::take(&place.directory, 1).unwrap();
        let other = open_own(&place.directory).unwrap();
        let try_lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
        // As in a child: a descriptor of the same open file.
        let _inherited = held.directory.try_clone().unwrap();
        drop(held);
        assert_eq!(try_lock(), Ok(()));
    }

    #[test]
    fn a_server_waits_for_one_that_binds_but_not_for_one_that_is_stopped() {
        let base = TemporaryDirectory::new("stopped");
        let mut place = base.place();
        let held = Lock::take(&place.directory, 1).unwrap();
        let Err(refused) = Lock::take(&place.directory, 3) else { panic!("two have the lock") };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(
            refused.to_string().contains("another process has had its lock for 0 s; it may be stopped"),
            "{refused}"
        );
        std::thread::scope(|scope| {
            let binds = scope.spawn(|| place.bind(8000).map(drop));
            drop(held);
            binds.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_directory_that_others_may_use_is_refused() {
        let base = TemporaryDirectory::new("open");
        let mut place = base.place();
        for mode in [0o770, 0o701, 0o777] {
            fs::set_permissions(&place.directory, Permissions::from_mode(mode)).unwrap();
            let refused = place.bind(8000).unwrap_err();
            assert!(matches!(refused, Error::InvalidArgument(why) if why.contains("mode 0700")), "{mode:o}");
        }
    }

    #[test]
    fn a_link_in_the_directorys_place_is_refused() {
        let base = TemporaryDirectory::new("link");
        let elsewhere = base.0.join("elsewhere");
        DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
        symlink(&elsewhere, base.0.join(format!("reverie-{}", geteuid().as_raw()))).unwrap();
        assert!(matches!(base.place().bind(1), Err(Error::InvalidArgument(_))));
    }
}
