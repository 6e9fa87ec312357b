//! Machines that stop at any operation of a disk: the journal brings back all that it acknowledged, once.

use super::support::disk::{FakeDisk, Names, Pages, Tail};
use super::support::saving::{NOW, ROOT, Steps, contents, insert};
use super::support::{Rows, options, queue, tables};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use reverie_core::append::Sink;
use reverie_core::checkpoint::{RetentionPolicy, Store};
use reverie_core::chunk::{Compression, TierInfo, TierOptions};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::item::Key;
use reverie_core::journal::{HeldLease, JournalEnd, Log, RecoveredJournal, recover};
use reverie_core::sample::{Lease, SampleRequest};
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{
    Change, Inserts, Keys, Lessee, Priority, Sender, SentInsert, SharedTable, TableOptions, Tables,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The states of the disk that a crash of the machine can leave.
pub(super) const POWER_LOSSES: [(Names, Tail); 6] = [
    (Names::SyncedAndCheckpoints, Tail::SecondHalf),
    (Names::Synced, Tail::None),
    (Names::Synced, Tail::SecondHalf),
    (Names::All, Tail::None),
    (Names::All, Tail::Half),
    (Names::All, Tail::SecondHalf),
];
/// The state of the disk after the end of a process.
pub(super) const KILLED: (Names, Tail) = (Names::All, Tail::All);

fn all() -> Vec<TableOptions> {
    let kinds = |name: &str, sampler, remover| TableOptions { sampler, remover, ..options(name, 12) };
    vec![
        queue("queue", 10),
        kinds("heaps", SelectorOptions::MaxHeap, SelectorOptions::MinHeap),
        kinds("per", SelectorOptions::Prioritized { exponent: 0.6 }, SelectorOptions::Fifo),
        kinds("steps", SelectorOptions::Uniform, SelectorOptions::Fifo),
        kinds("packed", SelectorOptions::Lifo, SelectorOptions::Lifo),
    ]
}

/// Operations of a program.
pub(super) const ACTS: usize = 60;
const SENDERS: [Sender; 2] = [[1; 16], [2; 16]];

/// Everything that must come back.
fn all_contents(tables: &Tables) -> String {
    let sent = tables.cut().unwrap().tables.into_iter().map(|cut| cut.sent);
    let of = |(table, sent): (&Arc<SharedTable>, _)| {
        let limits = table.info().options.limits();
        format!("{limits:?} {}{sent:?}\n", contents(tables, table.name()))
    };
    tables.iter().zip(sent).map(of).collect()
}

fn store(disk: &FakeDisk, tables: &Tables, segment_bytes: u64) -> reverie_core::Result<Arc<Store>> {
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None })?;
    let store = Arc::new(store.with_segment_bytes(segment_bytes));
    store.share(tables);
    Ok(store)
}

/// A server with a journal.
pub(super) struct Server {
    pub(super) tables: Arc<Tables>,
    log: Log,
    rows: Rows,
    steps: Steps,
    packed: Steps,
    sent: u64,
    /// The draws that clients hold, with their keys.
    leases: Vec<(Lessee, Vec<i64>, Lease)>,
}

/// The tables; with a disk tier that gives chunks so many bytes of memory. Its own files are on a disk that never
/// stops.
fn made(memory_bytes: Option<u64>) -> Arc<Tables> {
    let Some(memory_bytes) = memory_bytes else { return tables(all()).0 };
    let tier = TierOptions { folder: PathBuf::from("/tier"), memory_bytes, ..TierOptions::default() };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    Arc::new(Tables::with_disk(all(), None, Some((tier, Arc::new(FakeDisk::default()))), &clock, 7).unwrap())
}

impl Server {
    /// Starts on what the disk has.
    pub(super) fn start(disk: &FakeDisk, memory_bytes: Option<u64>) -> reverie_core::Result<Self> {
        let tables = made(memory_bytes);
        let recovered = recover(disk, Path::new(ROOT), tables.bytes().0)?;
        let store = store(disk, &tables, 900)?;
        let mut from = JournalEnd::default();
        let mut leases = Vec::new();
        if let Some(RecoveredJournal { checkpoint, leases: held, end, .. }) = recovered {
            from = end;
            store.adopt(&checkpoint);
            checkpoint.restore_limits(&tables, false)?;
            checkpoint.restore(&tables, NOW)?;
            for HeldLease { table, lessee, slots } in held {
                tables.hold_lease(&table, lessee, &slots)?;
                let keys = slots.iter().map(|of| Key::new(0, of.generation, of.slot).get()).collect();
                let [(_, lease)] = tables.claim_leases(&lessee.sender).try_into().unwrap();
                leases.push((lessee, keys, lease));
            }
        }
        let log = Log::begin(Arc::clone(&tables), store, from, || NOW)?;
        // Chunks that a start leaves on the disk have more than 4 KiB.
        let width = if memory_bytes.is_some() { 130 } else { 64 };
        let (rows, steps) = (Rows::new(&tables), Steps::of_width(&tables, "steps", Compression::None, width));
        let packed = Steps::of_width(&tables, "packed", Compression::Zstd, width);
        Ok(Self { tables, log, rows, steps, packed, sent: 0, leases })
    }

    /// The figures of its disk tier: zeros without one.
    fn tier(&self) -> TierInfo {
        self.tables.bytes().0.tier_info().unwrap_or_default()
    }

    /// Everything that must come back, with the draws that clients hold.
    fn contents(&self) -> String {
        let mut leases: Vec<_> = self.leases.iter().map(|(lessee, keys, _)| (lessee, keys)).collect();
        leases.sort();
        format!("{}{leases:?}", all_contents(&self.tables))
    }

    /// A client draws from the queue, or acknowledges or returns draws that one holds.
    fn lease(&mut self, random: &mut impl RngCore) {
        let at = random.next_u32() as usize;
        match random.next_u32() % 4 {
            0 if !self.leases.is_empty() => self.leases.swap_remove(at % self.leases.len()).2.acknowledge(),
            1 if !self.leases.is_empty() => drop(self.leases.swap_remove(at % self.leases.len())),
            _ => {
                self.sent += 1;
                let lessee = Lessee { sender: SENDERS[at % 2], request: self.sent };
                let request = SampleRequest { num_samples: 1 + at % 3, lessee: Some(lessee), ..Default::default() };
                let mut draws = self.tables.get("queue").unwrap().sample(request).unwrap().cancel().unwrap();
                let keys: Vec<i64> = draws.keys.iter().map(|key| key.get()).collect();
                if !keys.is_empty() {
                    self.leases.push((lessee, keys, std::mem::take(&mut draws.lease)));
                }
            }
        }
    }

    fn keys(&self, table: &str) -> Vec<i64> {
        let table = self.tables.get(table).unwrap();
        table
            .cut()
            .iter()
            .map(|(index, slot, _)| reverie_core::item::Key::new(0, slot.generation, index).get())
            .collect()
    }

    /// One random operation.
    fn act(&mut self, random: &mut impl RngCore) {
        let name = ["queue", "heaps", "per"][random.next_u32() as usize % 3];
        let value = f64::from(random.next_u32() % 100);
        let some = |keys: Vec<i64>, random: &mut dyn RngCore| -> Vec<i64> {
            keys.into_iter().filter(|_| random.next_u32().is_multiple_of(3)).collect()
        };
        let table = Arc::clone(self.tables.get(name).unwrap());
        match random.next_u32() % 16 {
            0..=2 => {
                // A queue that is full lets it wait, with a part of its items in the table.
                let items: Inserts = (0..1 + random.next_u32() % 4)
                    .map(|more| (self.rows.item(value + f64::from(more)), Priority::Value(value)))
                    .collect();
                self.sent += 1;
                let sent = SentInsert { sender: SENDERS[random.next_u32() as usize % 2], number: self.sent };
                // Makes room for them, if chunks move to the disk.
                drop(Sink::insert(&*self.tables, name, Inserts::new()).unwrap());
                drop(table.insert_sent(items, sent, Keys::new()).unwrap());
            }
            3 => insert(&self.tables, "per", [(self.rows.item(value), value)]).clear(),
            4 => self.rows.close(),
            5..=7 => self.steps.step(),
            8 | 9 => self.packed.step(),
            10 => {
                let keys = some(self.keys(name), random);
                table.update(&keys, &vec![value; keys.len()], None).unwrap();
            }
            11 => _ = table.delete(&some(self.keys(name), random)).unwrap(),
            12 => {
                let request = SampleRequest { num_samples: 1 + random.next_u32() as usize % 3, ..Default::default() };
                drop(table.sample(request).unwrap().cancel());
            }
            13 => {
                let sender = SENDERS[random.next_u32() as usize % 2];
                table.received(&sender, self.sent.saturating_sub(3), &[self.sent]);
            }
            14 => match random.next_u32() % 4 {
                0 => {
                    table.reset().unwrap();
                    if name == "queue" {
                        self.leases.clear();
                    }
                }
                1 => table.forget_sender(&SENDERS[0]),
                2 => self.tables.forgotten().add(SENDERS[1]),
                _ => {
                    let max_size = Some(8 + random.next_u64() % 5);
                    table.configure(Change { max_size, ..Change::default() }).unwrap();
                }
            },
            _ => self.lease(random),
        }
    }
}

/// The states that were written, in order, and those that must be there after a crash.
#[derive(Default)]
pub(super) struct History {
    /// The tables at each commit, from the state at the start on.
    states: Vec<String>,
    /// The last of them that a killed process has at least, and the last that a stopped machine has.
    pub(super) written: usize,
    pub(super) synced: usize,
    /// Some chunk was read where a checkpoint has it.
    shared: bool,
    /// The disk did not stop before the end of the program.
    pub(super) finished: bool,
}

/// Runs a program of random operations until the disk stops. `known` are its states if it ran before.
pub(super) fn run(server: &mut Server, random: &mut impl RngCore, acts: usize, known: Option<&History>) -> History {
    let mut history = History { states: vec![server.contents()], ..History::default() };
    // Chunks on the disk are read where the last checkpoint has them.
    let saves_of = if server.tier().memory_bytes > 0 { 6 } else { 20 };
    for _ in 0..acts {
        server.act(random);
        history.shared |= server.tier().shared > 0;
        let commits = random.next_u32() % 3;
        let (saves, syncs) = (random.next_u32().is_multiple_of(saves_of), random.next_u32().is_multiple_of(3));
        if commits == 0 && !saves {
            continue;
        }
        let last = history.states.len();
        history.states.push(known.map_or_else(|| server.contents(), |known| known.states[last].clone()));
        if server.log.commit(true).is_err() {
            return history;
        }
        history.written = last;
        if saves {
            if server.log.save().is_err() {
                return history;
            }
            history.synced = last;
        }
        if syncs {
            if server.log.sync().is_err() {
                return history;
            }
            history.synced = last;
        }
    }
    history.finished = true;
    history
}

/// Checks what a server that starts on this disk has; returns the server.
pub(super) fn check(
    left: &FakeDisk,
    memory_bytes: Option<u64>,
    history: &History,
    least: usize,
    place: &str,
) -> Server {
    let server = Server::start(left, memory_bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
    let got = server.contents();
    let found = history.states.iter().rposition(|state| *state == got);
    assert!(found.is_some(), "{place}: no state of the tables:\n{got}\nwanted\n{}", history.states[least]);
    let found = found.unwrap();
    let want = &history.states[least];
    assert!(found >= least, "{place}: the state {found}, and {least} was acknowledged:\n{got}\nwanted\n{want}");
    server
}

/// Counts over the crashes of some programs.
#[derive(Clone, Copy, Debug, Default)]
struct CrashCounts {
    crashes: u64,
    /// Chunks that the programs moved to the disk.
    moved: u64,
    /// Programs that read chunks where a checkpoint has them.
    shared: u64,
    /// Starts that left chunks where the journal has them.
    left: u64,
}

impl std::iter::Sum for CrashCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |all, one| Self {
            crashes: all.crashes + one.crashes,
            moved: all.moved + one.moved,
            shared: all.shared + one.shared,
            left: all.left + one.left,
        })
    }
}

/// Stops a program after every so many operations of the disk.
fn crash_points(seed: u64, memory_bytes: Option<u64>, every: usize) -> CrashCounts {
    let random = || Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut first = Server::start(&FakeDisk::default(), memory_bytes).unwrap();
    let whole = run(&mut first, &mut random(), ACTS, None);
    let mut found = CrashCounts { moved: first.tier().moved, shared: whole.shared.into(), ..CrashCounts::default() };
    for stop in (0..).step_by(every) {
        let disk = FakeDisk::default();
        let (mut random, mut server) = (random(), Server::start(&disk, memory_bytes).unwrap());
        disk.stop_after(stop);
        let history = run(&mut server, &mut random, ACTS, Some(&whole));
        for (names, tail) in POWER_LOSSES.into_iter().chain([KILLED]) {
            let left = disk.after_crash(names, tail);
            let place = format!("seed {seed}, stopped after {stop}, {names:?} {tail:?}");
            let killed = matches!((names, tail), (Names::All, Tail::All));
            let least = if killed { history.written } else { history.synced };
            let mut server = check(&left, memory_bytes, &history, least, &place);
            (found.crashes, found.left) = (found.crashes + 1, found.left + u64::from(server.tier().shared > 0));
            if killed && stop % 5 == 0 {
                server.sent = 1000;
                // And the journal that goes on there is as good.
                let history = run(&mut server, &mut random.clone(), 6, None);
                let left = left.after_crash(Names::All, Tail::All);
                check(&left, memory_bytes, &history, history.written, &format!("{place}, and once more"));
            }
        }
        if history.finished {
            return found;
        }
    }
    unreachable!("a program ends");
}

/// The program goes on after a sync of the disk failed; returns whether one did.
fn failed_sync(seed: u64, after: u64, pages: Pages) -> bool {
    let disk = FakeDisk::default();
    let (mut random, mut server) = (Xoshiro256PlusPlus::seed_from_u64(seed), Server::start(&disk, None).unwrap());
    disk.fail_sync(after, pages);
    let mut history = run(&mut server, &mut random, ACTS, None);
    if !disk.has_failed_sync() {
        return false;
    }
    let place = format!("seed {seed}, sync {after} fails, {pages:?}");
    // The disk works again, and a caller that tries again may rely on the result.
    for _ in 0..4 {
        let (so_far, more) = (history.states.len(), run(&mut server, &mut random, 6, None));
        let later = |of: usize| if of > 0 { so_far + of } else { 0 };
        history.written = history.written.max(later(more.written));
        history.synced = history.synced.max(later(more.synced));
        history.states.extend(more.states);
        for (names, tail) in [(Names::Synced, Tail::None), (Names::All, Tail::Half), KILLED] {
            let killed = matches!((names, tail), (Names::All, Tail::All));
            let least = if killed { history.written } else { history.synced };
            check(&disk.after_crash(names, tail), None, &history, least, &format!("{place}, {names:?} {tail:?}"));
        }
    }
    true
}

#[test]
fn changes_reported_as_on_the_disk_after_a_failed_sync_are_there_whether_its_pages_are_lost_or_kept() {
    for (seed, pages) in [(1, Pages::Lost), (2, Pages::Kept)] {
        let failed = (0..).step_by(9).take_while(|after| failed_sync(seed, *after, pages)).count();
        assert!(failed > 2, "{failed} syncs of seed {seed}");
    }
}

#[test]
fn a_machine_that_stops_at_any_operation_of_the_disk_loses_nothing_acknowledged_and_brings_nothing_back_twice() {
    // At a desk every third operation of one program.
    let (desk, on_ci) = ((1, 3), (2, 1));
    let usual = if std::env::var_os("CI").is_some() { on_ci } else { desk };
    let (programs, every) = programs().map_or(usual, |programs| (programs, 1));
    let found: CrashCounts = (0..programs).map(|seed| crash_points(seed, None, every)).sum();
    println!("{} crashes", found.crashes);
    assert!(found.crashes > 200 * programs, "{found:?}");
}

/// The number of programs, if a long run asks for it.
fn programs() -> Option<u64> {
    std::env::var("REVERIE_CRASHES").ok().map(|programs| programs.parse().expect("a number of programs"))
}

#[test]
fn a_machine_that_stops_while_chunks_move_to_the_disk_loses_nothing_acknowledged() {
    let stride = if std::env::var_os("CI").is_some() { 30 } else { 120 };
    let (programs, every) = programs().map_or((1, stride), |programs| (programs, 5));
    // Less than what a program uses, and more than what its writers and the heads of its chunks do.
    let found: CrashCounts = (1..=programs).map(|seed| crash_points(seed, Some(20_000), every)).sum();
    println!("{found:?}");
    assert!(found.crashes > 30 * programs && found.moved > 0, "{found:?}");
    assert!(found.shared > 0 && found.left > 0, "{found:?}");
}
