//! The folder of a journal: who may read it while a server uses it.

use super::starts::is_free;
use super::support::journaled::{options_of, server, wait};
use super::support::saving::{NOW, ROOT};
use reverie_core::checkpoint::Disk;
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::journal::{Syncs, repair, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn a_folder_that_a_server_uses_is_neither_checked_nor_repaired_until_that_has_released_it() {
    let mut first = server(options_of(Syncs::Always));
    wait(first.insert("rows", 1.0)).unwrap();
    let (any, root): (Arc<dyn Disk>, _) = (Arc::new(first.disk.clone()), Path::new(ROOT));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let repaired = || repair(&any, root, PathBuf::from("/repaired"), &clock, |_| {}, NOW).err();
    for refused in [verify(&*any, root).err(), repaired()] {
        let text = refused.expect("a server writes there").to_string();
        assert!(text.contains("a server writes there") && text.contains("wait until it has ended"), "{text}");
    }
    first.journal.stop().unwrap();
    assert!(verify(&*any, root).is_err(), "it may take a last checkpoint");
    first.store.release();
    assert_eq!(verify(&*any, root).unwrap().expect("a journal").items, 1);
    assert!(is_free(&first.disk) && repaired().is_none() && is_free(&first.disk));
}
