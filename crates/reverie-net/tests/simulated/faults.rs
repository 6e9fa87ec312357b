//! The faults and their times, all derived from the seed.

use super::actors::writer_name;
use super::{CONSUMER, SERVER, WRITERS, World, below, random};
use std::sync::atomic::Ordering;
use std::time::Duration;
use turmoil::Sim;

/// Faults happen until then.
const TROUBLE: Duration = Duration::from_secs(20);
/// And all must be done by then.
const END: Duration = Duration::from_secs(600);

enum Fault {
    Partition(String),
    OneWay(String),
    Hold(String),
    CrashServer,
    CrashWriter(usize),
    CrashConsumer,
}

/// Runs the simulation until it finishes; true if the server was crashed.
pub fn drive(sim: &mut Sim<'_>, world: &World) -> bool {
    let mut random = random(world.seed, 1);
    // One half of the simulations keeps its server: there, nothing may be lost.
    let crashes = below(&mut random, 2) == 0;
    let (mut next, mut fault): (Duration, Option<Fault>) = (Duration::from_millis(below(&mut random, 1000)), None);
    let mut crashed = false;
    loop {
        sim.step().unwrap_or_else(|error| panic!("seed {}: {error}", world.seed));
        let now = sim.elapsed();
        assert!(now < END, "seed {}: not done after {END:?}: {}", world.seed, world.describe());
        if world.writers_done.load(Ordering::SeqCst) == WRITERS && world.readers_done.load(Ordering::SeqCst) == 2 {
            return crashed;
        }
        if now < next {
            continue;
        }
        match fault.take() {
            Some(fault) => repair(sim, &fault),
            None if now < TROUBLE => {
                let kind = below(&mut random, if crashes { 6 } else { 5 });
                let host = match below(&mut random, 4) {
                    0 => "sampler".to_owned(),
                    1 => CONSUMER.to_owned(),
                    writer => writer_name(writer as usize - 2),
                };
                let new = match kind {
                    0 => Fault::Partition(host),
                    1 => Fault::OneWay(host),
                    2 => Fault::Hold(host),
                    3 => Fault::CrashWriter(below(&mut random, WRITERS as u64) as usize),
                    4 => Fault::CrashConsumer,
                    _ => Fault::CrashServer,
                };
                crashed |= matches!(new, Fault::CrashServer);
                fault = begin(sim, world, new);
            }
            None => {}
        }
        // A connection that hangs is noticed after 15 s: some faults are shorter, some longer.
        let longest = match (&fault, below(&mut random, 3)) {
            (None, _) => 1500,
            (Some(_), 0) => 25_000,
            (Some(_), _) => 1000,
        };
        next = now + Duration::from_millis(below(&mut random, longest));
    }
}

fn begin(sim: &mut Sim<'_>, world: &World, fault: Fault) -> Option<Fault> {
    match &fault {
        Fault::Partition(host) => sim.partition(SERVER, host.as_str()),
        Fault::OneWay(host) => sim.partition_oneway(SERVER, host.as_str()),
        Fault::Hold(host) => sim.hold(SERVER, host.as_str()),
        Fault::CrashServer => sim.crash(SERVER),
        // One that is through stays so.
        Fault::CrashWriter(writer) if !sim.is_host_running(writer_name(*writer)) => return None,
        Fault::CrashWriter(writer) => sim.crash(writer_name(*writer)),
        Fault::CrashConsumer if !sim.is_host_running(CONSUMER) => return None,
        Fault::CrashConsumer => {
            world.consumer_is_killed();
            sim.crash(CONSUMER);
        }
    }
    Some(fault)
}

fn repair(sim: &mut Sim<'_>, fault: &Fault) {
    match fault {
        Fault::Partition(host) => sim.repair(SERVER, host.as_str()),
        Fault::OneWay(host) => sim.repair_oneway(SERVER, host.as_str()),
        Fault::Hold(host) => sim.release(SERVER, host.as_str()),
        Fault::CrashServer => sim.bounce(SERVER),
        Fault::CrashWriter(writer) => sim.bounce(writer_name(*writer)),
        Fault::CrashConsumer => sim.bounce(CONSUMER),
    }
}
