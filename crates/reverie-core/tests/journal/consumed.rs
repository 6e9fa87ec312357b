//! Draws that use up their items wait for the journal, also where their table began to delete them while they waited.

use super::support::disk::{Names, Tail};
use super::support::journaled::{left, now, options_of, server, wait};
use reverie_core::journal::SyncPolicy;
use reverie_core::table::Change;

#[test]
fn a_request_that_waits_while_its_table_begins_to_delete_what_is_sampled_waits_for_the_journal() {
    let mut server = server(options_of(SyncPolicy::Always));
    let mut draws = server.draw("rows");
    let deletes = Change { max_times_sampled: Some(1), ..Change::default() };
    server.tables.get("rows").unwrap().configure(deletes).unwrap();
    server.disk.hold_syncs(true);
    let insert = server.insert("rows", 1.0);
    assert_eq!(server.tables.get("rows").unwrap().info().size, 0, "it is drawn at once");
    assert!(!draws.is_done() && draws.poll().is_none(), "the disk still works");
    server.disk.hold_syncs(false);
    assert_eq!(wait(draws).unwrap().len(), 1);
    wait(insert).unwrap();
    assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count(), 1, "its head only");
    server.journal.stop().unwrap();
    assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None)), now(&server));
}

#[test]
fn a_request_that_waits_and_keeps_its_items_waits_for_no_journal() {
    let mut server = server(options_of(SyncPolicy::Always));
    let mut draws = server.draw("rows");
    server.disk.hold_syncs(true);
    let insert = server.insert("rows", 1.0);
    assert_eq!(draws.poll().expect("no item is used up").unwrap().len(), 1);
    server.disk.hold_syncs(false);
    wait(insert).unwrap();
    server.journal.stop().unwrap();
}

#[test]
fn a_withdrawn_request_has_the_draws_that_were_made_whether_they_are_durable_or_not() {
    let mut server = server(options_of(SyncPolicy::Always));
    let draws = server.draw("rows");
    let deletes = Change { max_times_sampled: Some(1), ..Change::default() };
    server.tables.get("rows").unwrap().configure(deletes).unwrap();
    server.disk.hold_syncs(true);
    let insert = server.insert("rows", 1.0);
    assert_eq!(draws.cancel().unwrap().len(), 1);
    assert_eq!(server.draw("rows").cancel().unwrap().len(), 0);
    server.disk.hold_syncs(false);
    wait(insert).unwrap();
    server.journal.stop().unwrap();
}
