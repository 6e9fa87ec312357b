//! One limiter over several shards: how many inserts each may admit, while it holds for their sum and no writer stalls.

use crate::support::{ratio_limiter, shards, tally};
use proptest::prelude::*;
use reverie_core::table::Tally;
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::Mass;
use reverie_net::sharded::Model;

proptest! {
    #[test]
    fn the_most_inserts_are_those_that_can_insert_lets_in(
        spi in 0.1_f64..8.0, min_size in 1_u64..50, low in -50.0_f64..50.0, width in 0.0_f64..200.0,
        inserts in 0_u64..300, samples in 0_u64..2000, deletes in 0_u64..300,
    ) {
        let limiter = Limiter::new(spi, min_size, low, low + width).unwrap();
        let counters = Counters { inserts, samples, deletes: deletes.min(inserts) };
        let most = limiter.most_inserts(&counters).unwrap();
        let open = (0..=50_000).take_while(|n| limiter.can_insert(&counters, n + 1)).count() as u64;
        prop_assert_eq!(most.saturating_sub(inserts), open);
    }
}

#[test]
fn a_limiter_without_an_upper_end_lets_any_number_in() {
    let counters = Counters { inserts: 1 << 40, samples: 0, deletes: 0 };
    assert_eq!(Limiter::min_size(5).unwrap().most_inserts(&counters), None);
    let mut two = Model::new(2, Limiter::min_size(5).unwrap(), 1);
    two.received(0, Tally { ration: Some(0), incarnation: 9, ..tally(0.0, 0, 0) });
    two.received(1, tally(0.0, 0, 0));
    assert_eq!(two.rations(&[0, 0]), [Some((9, i64::MAX as u64)), None], "one that limits itself receives nothing");
}

/// A shard, as far as the limiter goes: what a rationed table does, without items.
#[derive(Clone, Debug, Default)]
struct Server {
    incarnation: u64,
    counters: Counters,
    size: u64,
    mass: f64,
    ration: u64,
    waiting: u64,
}

impl Server {
    fn grant(&mut self, incarnation: u64, ration: u64) {
        if incarnation == self.incarnation {
            self.ration = ration.max(self.counters.inserts);
        }
    }

    fn tally(&self) -> Tally {
        Tally {
            incarnation: self.incarnation,
            size: self.size,
            mass: Mass { total: self.mass * self.size as f64, zeros: 0 },
            counters: self.counters,
            ration: Some(self.ration),
            waiting_inserts: self.waiting,
            ..Tally::default()
        }
    }

    fn admit(&mut self, max_size: u64) -> bool {
        let open = self.waiting > 0 && self.counters.inserts < self.ration;
        if open {
            self.waiting -= 1;
            self.counters.inserts += 1;
            self.size = (self.size + 1).min(max_size);
            self.counters.deletes = self.counters.inserts - self.size;
        }
        open
    }
}

/// Model, and the client that samples them.
struct World {
    shards: Model,
    servers: Vec<Server>,
    up: Vec<bool>,
    max_size: u64,
}

impl World {
    fn new(limiter: Limiter, masses: &[f64], max_size: u64) -> Self {
        let server = |mass: &f64| Server { mass: *mass, incarnation: 1, ..Server::default() };
        let mut world = Self {
            shards: Model::new(masses.len(), limiter, 5),
            servers: masses.iter().map(server).collect(),
            up: vec![true; masses.len()],
            max_size,
        };
        world.exchange(u64::MAX);
        world
    }

    /// Rations go out to shards, and their answers come in: of those whose bit is set. The others are late.
    fn exchange(&mut self, reached: u64) {
        let rations = self.shards.rations(&vec![0; self.servers.len()]);
        for (shard, server) in self.servers.iter_mut().enumerate() {
            if !self.up[shard] || reached & (1 << shard) == 0 {
                continue;
            }
            if let Some((incarnation, ration)) = rations[shard] {
                server.grant(incarnation, ration);
            }
            self.shards.received(shard, server.tally());
        }
    }

    fn draw(&mut self, wanted: u64) -> u64 {
        let allowed = self.shards.allowed(wanted);
        if allowed == 0 {
            return 0;
        }
        let split = self.shards.split(allowed).unwrap();
        for (shard, count) in split.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.servers[shard].counters.samples += count;
            self.shards.received(shard, self.servers[shard].tally());
        }
        allowed
    }

    fn admit(&mut self) -> u64 {
        let max_size = self.max_size;
        let up = self.servers.iter_mut().zip(&self.up).filter(|(_, up)| **up);
        up.map(|(server, _)| (0..1000).take_while(|_| server.admit(max_size)).count() as u64).sum()
    }

    fn diff(&self, limiter: &Limiter) -> f64 {
        let counters =
            |count: fn(&Counters) -> u64| self.servers.iter().map(|server| count(&server.counters)).sum::<u64>();
        counters(|c| c.inserts) as f64 * limiter.samples_per_insert() - counters(|c| c.samples) as f64
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { shard: usize, items: u64 },
    Exchange { reached: u64 },
    Draw { wanted: u64 },
    Lose { shard: usize },
    Return { shard: usize, restarted: bool },
}

fn steps(shards: usize, failures: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..shards, 1_u64..20).prop_map(|(shard, items)| Step::Write { shard, items }),
        4 => any::<u64>().prop_map(|reached| Step::Exchange { reached }),
        4 => (1_u64..64).prop_map(|wanted| Step::Draw { wanted }),
        u32::from(failures) => (0..shards).prop_map(|shard| Step::Lose { shard }),
        u32::from(failures) => (0..shards, any::<bool>()).prop_map(|(shard, restarted)| Step::Return { shard, restarted }),
    ];
    prop::collection::vec(step, 0..120)
}

fn play(world: &mut World, step: &Step) {
    match *step {
        Step::Write { shard, items } => world.servers[shard].waiting += items,
        Step::Exchange { reached } => world.exchange(reached),
        Step::Draw { wanted } => _ = world.draw(wanted),
        Step::Lose { shard } => {
            world.up[shard] = false;
            world.shards.lost(shard);
        }
        Step::Return { shard, restarted } if !world.up[shard] => {
            world.up[shard] = true;
            if restarted {
                let Server { incarnation, mass, waiting, .. } = world.servers[shard];
                world.servers[shard] = Server { incarnation: incarnation + 1, mass, waiting, ..Server::default() };
            }
            world.shards.received(shard, world.servers[shard].tally());
        }
        Step::Return { .. } => {}
    }
    world.admit();
}

fn limiters() -> impl Strategy<Value = Limiter> {
    (0.3_f64..9.0, 1_u64..40, 1.0_f64..6.0).prop_map(|(spi, min_size, slack)| {
        let error = spi.max(1.0) * slack + 1.0;
        ratio_limiter(spi, min_size, error)
    })
}

fn masses() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.01_f64..10.0, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes late, the sum over all shards keeps to the limits of one table.
    #[test]
    fn the_limits_hold_for_the_sum_of_all_shards(
        limiter in limiters(), masses in masses(), steps in steps(5, false), max_size in 40_u64..200,
    ) {
        let mut world = World::new(limiter, &masses, max_size);
        let shards = masses.len();
        for step in &steps {
            match step {
                Step::Write { shard, .. } if *shard >= shards => continue,
                step => play(&mut world, step),
            }
            let inserts: u64 = world.servers.iter().map(|server| server.counters.inserts).sum();
            let diff = world.diff(&limiter);
            prop_assert!(diff <= limiter.max_diff() || inserts <= limiter.min_size_to_sample(), "{diff} after {step:?}");
            let samples: u64 = world.servers.iter().map(|server| server.counters.samples).sum();
            prop_assert!(diff >= limiter.min_diff() || samples == 0, "{diff} after {step:?}");
        }
    }

    /// After any past, with shards lost and back: writers that take the shards in turns, each waiting for its item, and
    /// a reader never come to stand still together, whatever the masses.
    #[test]
    fn writers_in_turns_and_a_reader_never_stall(
        limiter in limiters(), masses in masses(), steps in steps(5, true), idle in any::<u64>(),
    ) {
        let mut world = World::new(limiter, &masses, 100);
        let shards = masses.len();
        for step in &steps {
            match step {
                Step::Write { shard, .. } | Step::Lose { shard } | Step::Return { shard, .. } if *shard >= shards => {}
                step => play(&mut world, step),
            }
        }
        (0..shards).for_each(|shard| play(&mut world, &Step::Return { shard, restarted: false }));
        // Some shards have no writer: what they were given must come to the others.
        let writes: Vec<usize> = (0..shards).filter(|shard| idle & (1 << shard) == 0 || *shard == 0).collect();
        world.servers.iter_mut().for_each(|server| server.waiting = 0);
        let (mut still, mut turn, mut inserted) = (0, 0, 0);
        for _ in 0..2000 {
            let shard = writes[turn % writes.len()];
            if world.servers[shard].waiting == 0 {
                world.servers[shard].waiting = 1;
                turn += 1;
            }
            world.exchange(u64::MAX);
            let admitted = world.admit();
            inserted += admitted;
            still = if admitted + world.draw(16) > 0 { 0 } else { still + 1 };
            prop_assert!(still < 4, "no writer goes on: {:?} {:?}", world.servers, world.shards);
        }
        prop_assert!(inserted > 100, "{inserted} inserts in 2000 turns");
    }
}

#[test]
fn a_limiter_for_each_shard_would_stall_where_rations_do_not() {
    // The twin of the test above: masses 90/10, inserts in turns, draws in order.
    let limiter = ratio_limiter(4.0, 5, 40.0);
    let mut each = [Counters::default(); 2];
    let mut by_mass = shards(&[tally(9.0, 0, 1), tally(1.0, 0, 1)]);
    let (mut turn, mut still, mut next) = (0, 0, None);
    while still < 2 && turn < 10_000 {
        still += 1;
        if limiter.can_insert(&each[turn % 2], 1) {
            each[turn % 2].inserts += 1;
            (turn, still) = (turn + 1, 0);
        }
        let shard = *next.get_or_insert_with(|| usize::from(by_mass.split(1).unwrap().counts[1] > 0));
        if limiter.can_sample(&each[shard], 1) {
            each[shard].samples += 1;
            (next, still) = (None, 0);
        }
    }
    assert!(turn < 1000, "the reader waits for the heavy shard, the writer for the light one: {each:?}");
}
