//! Draws and updates of the selectors, in batches of 256 and one at a time: `cargo bench --bench selectors`.
#![allow(missing_docs, reason = "criterion_group! makes a public function")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reverie_core::table::selector::{AnySelector, Selector, SelectorOptions};
use std::hint::black_box;
use std::time::Duration;

const BATCH: usize = 256;
const SIZES: [u32; 2] = [20_000, 1_000_000];

/// Numbers that are as good as random to a cache.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(n)) >> 32) as u32
    }

    fn priority(&mut self) -> f64 {
        f64::from(self.below(1 << 30)) / f64::from(1 << 24) + 1e-6
    }
}

fn filled(options: SelectorOptions, size: u32) -> AnySelector {
    let mut numbers = Numbers(1);
    let mut selector = AnySelector::new(&options, 1);
    (0..size).for_each(|slot| selector.insert(slot, numbers.priority()));
    selector
}

fn updates(size: u32) -> Vec<Vec<(u32, f64)>> {
    let mut numbers = Numbers(2);
    (0..512).map(|_| (0..BATCH).map(|_| (numbers.below(size), numbers.priority())).collect()).collect()
}

fn options() -> [SelectorOptions; 7] {
    let prioritized = [0.6, 0.5, 1.0].map(|exponent| SelectorOptions::Prioritized { exponent });
    let [usual, half, one] = prioritized;
    [usual, half, one, SelectorOptions::Uniform, SelectorOptions::MaxHeap, SelectorOptions::Fifo, SelectorOptions::Lifo]
}

fn batches(c: &mut Criterion) {
    for size in SIZES {
        let mut group = c.benchmark_group(format!("{BATCH} of {size}"));
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(700));
        group.throughput(Throughput::Elements(BATCH as u64));
        let updates = updates(size);
        for options in options() {
            let mut selector = filled(options, size);
            let mut picks = Vec::new();
            group.bench_function(BenchmarkId::new("draw", options), |b| {
                b.iter(|| {
                    picks.clear();
                    selector.draw_many(BATCH, &mut picks);
                    black_box(&picks);
                });
            });
            let mut next = updates.iter().cycle();
            group.bench_function(BenchmarkId::new("update", options), |b| {
                b.iter(|| selector.update_many(next.next().expect("the cycle has no end")));
            });
        }
    }
}

fn single(c: &mut Criterion) {
    let mut group = c.benchmark_group("one of 1000000");
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(500));
    for options in options() {
        let mut selector = filled(options, 1_000_000);
        group.bench_function(BenchmarkId::new("draw", options), |b| b.iter(|| black_box(selector.draw())));
        let mut slots = (0..1_000_000).cycle();
        group.bench_function(BenchmarkId::new("remove and insert", options), |b| {
            b.iter_batched(
                || slots.next().expect("the cycle has no end"),
                |slot| {
                    selector.remove(slot);
                    selector.insert(slot, 2.0);
                },
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(selectors, batches, single);
criterion_main!(selectors);
