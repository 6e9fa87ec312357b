//! A link between two TUN devices with a delay, a rate and a loss: `tc netem` for kernels that have none.
//!
//! `wan_relay DELAY_MS MBIT LOSS SEED` reads packets from the device at its stdin and writes them to the device at its
//! stdout, and the other way round, until either device is gone. Each direction delays every packet by DELAY_MS behind
//! a queue that drains at MBIT megabits per second, and discards packets with probability LOSS, or where the queue is
//! full. The standard library only: `rustc -O` builds it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The largest packet of a device.
const PACKET: usize = 1 << 16;
/// Bytes that wait for the link at most: 1,000 packets of an Ethernet, as of netem.
const QUEUE: f64 = 1_500_000.0;
/// Bytes that a packet costs on the link in addition to its own: an Ethernet header.
const HEADER: usize = 14;

/// One direction of the link.
#[derive(Clone, Copy)]
struct Direction {
    delay: Duration,
    bytes_per_second: f64,
    loss: f64,
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [delay, mbit, loss, seed] = arguments.as_slice() else {
        eprintln!("usage: wan_relay DELAY_MS MBIT LOSS SEED < DEVICE > DEVICE");
        std::process::exit(2);
    };
    let direction = Direction {
        delay: Duration::from_secs_f64(delay.parse::<f64>()? / 1e3),
        bytes_per_second: mbit.parse::<f64>()? * 1e6 / 8.0,
        loss: loss.parse()?,
        seed: seed.parse()?,
    };
    let near = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let far = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let back = Direction { seed: direction.seed.wrapping_add(1), ..direction };
    let (from_far, to_near) = (far.try_clone()?, near.try_clone()?);
    let there = std::thread::spawn(move || relay(near, far, direction));
    relay(from_far, to_near, back);
    let _ = there.join();
    Ok(())
}

/// Carries packets until a device is gone.
fn relay(mut from: File, mut to: File, direction: Direction) {
    let (sender, packets) = mpsc::channel::<(Instant, Vec<u8>)>();
    let writer = std::thread::spawn(move || {
        for (due, packet) in packets {
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                std::thread::sleep(left);
            }
            // A packet that the device does not take is lost, as on any link.
            let _ = to.write(&packet);
        }
    });
    let (mut random, mut free) = (direction.seed, Instant::now());
    let mut packet = vec![0; PACKET];
    while let Ok(size @ 1..) = from.read(&mut packet) {
        let now = Instant::now();
        let begins = free.max(now);
        let queued = (begins - now).as_secs_f64() * direction.bytes_per_second;
        if uniform(&mut random) < direction.loss || queued > QUEUE {
            continue;
        }
        free = begins + Duration::from_secs_f64((size + HEADER) as f64 / direction.bytes_per_second);
        if sender.send((free + direction.delay, packet[..size].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.join();
}

/// The next random number from 0 to 1, by SplitMix64.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
