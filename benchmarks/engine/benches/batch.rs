//! The cost of writing chunks and of gathering batches, compared to one memcpy of the same bytes.
#![allow(missing_docs)] // the functions that criterion_group! makes

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reverie_core::batch::{BatchOptions, Plan, Planner};
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout, Meter};
use reverie_core::item::{Body, Cells, Form, Item, Part, Pattern, PatternColumn, Span};
use reverie_core::spec::{ColumnSpec, DType, Structure, StructureKey};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// obs (4 f32), action, reward, next_obs (4 f32), discount.
const TRANSITION: [(usize, usize); 5] = [(16, 4), (4, 4), (4, 4), (16, 4), (4, 4)];
const FRAME: usize = 84 * 84;

fn column(path: &str, dtype: DType, shape: &[usize], at: u32, cells: Cells, squeeze: bool) -> PatternColumn {
    let spec = ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() };
    PatternColumn { spec, part: 0, column: at, cells, squeeze, stack_axis: 0 }
}

fn pattern(columns: Vec<PatternColumn>) -> Form {
    let entries = columns.iter().map(|column| (StructureKey::Str(column.spec.path.clone()), Structure::Leaf)).collect();
    Form::new(Pattern { columns: columns.into(), structure: Structure::Dict(entries), timestep: false, alike: false })
}

fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize % below
}

/// Batches of random items, enough of them that the cells have left the cache when their turn comes again.
fn batches(items: &[Item], size: usize, count: usize) -> Vec<Vec<Item>> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    (0..count).map(|_| (0..size).map(|_| items[random(&mut state, items.len())].clone()).collect()).collect()
}

fn arrays(plan: &Plan) -> Vec<Vec<MaybeUninit<u8>>> {
    plan.outputs.iter().map(|output| vec![MaybeUninit::new(1); output.bytes()]).collect()
}

fn run(group: &mut BenchmarkGroup<'_, WallTime>, id: BenchmarkId, batches: &[Vec<Item>]) {
    let mut planner = Planner::new(&BatchOptions::default());
    let plan = planner.plan(&batches[0]).unwrap();
    let mut arrays = arrays(&plan);
    group.throughput(Throughput::Bytes(arrays.iter().map(|array| array.len() as u64).sum()));
    let mut turn = 0;
    group.bench_function(id, |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % batches.len();
            let plan = planner.plan(&batches[turn]).unwrap();
            let mut slices: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(|array| &mut array[..]).collect();
            plan.gather(black_box(&batches[turn]), &mut slices).unwrap();
        });
    });
}

fn transitions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather 256 transitions of 44 B");
    for (name, n) in [("20 k", 20_000), ("1 M", 1_000_000)] {
        let meter = Arc::new(Meter::new());
        let layout = Arc::new(Layout::interleaved(&TRANSITION, 64));
        let columns = TRANSITION.iter().enumerate().map(|(at, (width, _))| {
            let shape: &[usize] = if *width == 16 { &[4] } else { &[] };
            column(&format!("c{at}"), DType::Float32, shape, at as u32, Cells::one(0), true)
        });
        let form = pattern(columns.collect());
        let mut items = Vec::with_capacity(n);
        while items.len() < n {
            let mut writer = ChunkWriter::new(layout.clone(), Compression::None, &meter);
            for row in 0..64 {
                TRANSITION.iter().enumerate().for_each(|(at, (width, _))| writer.push(at, &[row as u8; 16][..*width]));
                let body = Body::Chunk(writer.chunk().clone());
                items.push(Item { body, pattern: form.clone(), anchor: row, episode: 0, stream: 0 });
            }
        }
        let count = if n > 100_000 { 512 } else { 64 };
        run(&mut group, BenchmarkId::from_parameter(name), &batches(&items, 256, count));
        // As an n-step writer makes them: one in 16 reaches over a chunk's end, or has the pattern of an episode's end.
        let other = Form::new(Pattern { timestep: true, ..(*form).clone() });
        for (index, item) in items.iter_mut().enumerate() {
            let Body::Chunk(chunk) = &item.body else { continue };
            match index % 32 {
                0 => {
                    let part = Part { chunks: [chunk.clone()].into(), starts: [0, 64].into() };
                    item.body = Body::Span(Arc::new(vec![part].into()));
                }
                16 => item.pattern = other.clone(),
                _ => {}
            }
        }
        run(&mut group, BenchmarkId::new(name, "mixed"), &batches(&items, 256, count));
    }
}

fn spans(compression: Compression, frames: usize) -> (Arc<Span>, Arc<Meter>) {
    let (meter, layout) = (Arc::new(Meter::new()), Arc::new(Layout::columnar(&[(FRAME, 1), (4, 4)], 32)));
    let (mut chooser, mut chunks, mut starts) = (Chooser::new(compression), Vec::new(), vec![0_i64]);
    let mut frame: Vec<u8> = (0..FRAME).map(|at| (at / 84 / 12 * 20) as u8).collect();
    while (*starts.last().unwrap() as usize) < frames {
        let mut writer = ChunkWriter::new(layout.clone(), chooser.next(), &meter);
        for step in 0..32 {
            (0..20).for_each(|at| frame[(step * 331 + at * 84 + starts.len() * 97) % FRAME] ^= 0x3c);
            writer.push(0, &frame);
            writer.push(1, &[0; 4]);
        }
        chunks.push(writer.seal(&mut chooser));
        starts.push(starts.last().unwrap() + 32);
    }
    (Arc::new(vec![Part { chunks: chunks.into(), starts: starts.into() }].into()), meter)
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather 256 x 2 stacks of four 84 x 84 frames");
    group.sample_size(20);
    let form = pattern(vec![
        column("next_obs", DType::UInt8, &[84, 84], 0, Cells::range(1, 5), false),
        column("obs", DType::UInt8, &[84, 84], 0, Cells::range(0, 4), false),
        column("reward", DType::Float32, &[], 1, Cells::one(0), true),
    ]);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (parts, meter) = spans(compression, 20_000);
        println!("{compression:?}: {} bytes a frame", meter.live_bytes() / 20_000);
        let item =
            |anchor| Item { body: Body::Span(parts.clone()), pattern: form.clone(), anchor, episode: 0, stream: 0 };
        let batches = batches(&(0..19_000).map(item).collect::<Vec<_>>(), 256, 16);
        run(&mut group, BenchmarkId::from_parameter(format!("{compression:?}")), &batches);
    }
    let mut last = (*form).clone();
    last.columns.iter_mut().filter(|column| !column.squeeze).for_each(|column| column.stack_axis = 2);
    let (last, (parts, _meter)) = (Form::new(last), spans(Compression::None, 20_000));
    let item = |anchor| Item { body: Body::Span(parts.clone()), pattern: last.clone(), anchor, episode: 0, stream: 0 };
    let batches = batches(&(0..19_000).map(item).collect::<Vec<_>>(), 256, 16);
    run(&mut group, BenchmarkId::from_parameter("None, stacked along the last axis"), &batches);
    let bytes = 256 * 2 * 4 * FRAME;
    let (from, mut to) = (vec![7_u8; bytes], vec![0_u8; bytes]);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("one memcpy", |bencher| bencher.iter(|| to.copy_from_slice(black_box(&from))));
}

fn payloads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather 64 cells");
    for bytes in [400, 4_000, 40_000, 400_000] {
        let (meter, n) = (Arc::new(Meter::new()), (200_000_000 / bytes).min(20_000));
        let layout = Arc::new(Layout::columnar(&[(bytes, 4)], 1));
        let form = pattern(vec![column("x", DType::Float32, &[bytes / 4], 0, Cells::one(0), true)]);
        let chunk = |index: usize| -> Arc<Chunk> {
            let mut writer = ChunkWriter::new(layout.clone(), Compression::None, &meter);
            writer.push(0, &vec![index as u8; bytes]);
            writer.seal(&mut Chooser::new(Compression::None))
        };
        let item =
            |index| Item { body: Body::Chunk(chunk(index)), pattern: form.clone(), anchor: 0, episode: 0, stream: 0 };
        let items = (0..n).map(item).collect::<Vec<_>>();
        run(&mut group, BenchmarkId::from_parameter(bytes), &batches(&items, 64, 256));
        let (from, mut to) = (vec![7_u8; 64 * bytes], vec![0_u8; 64 * bytes]);
        group.bench_function(BenchmarkId::new("one memcpy", bytes), |bencher| {
            bencher.iter(|| to.copy_from_slice(black_box(&from)));
        });
    }
}

fn pushes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    let meter = Arc::new(Meter::new());
    let layout = Arc::new(Layout::interleaved(&TRANSITION, 64));
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 transitions and their chunk", |bencher| {
        bencher.iter(|| {
            let mut writer = ChunkWriter::new(layout.clone(), Compression::None, &meter);
            for row in 0..64_u8 {
                let cell = black_box([row; 16]);
                TRANSITION.iter().enumerate().for_each(|(at, (width, _))| writer.push(at, &cell[..*width]));
            }
            writer.seal(&mut Chooser::new(Compression::None))
        });
    });
    // A window that moves, as in a full table: each new chunk comes with the end of an old one.
    for bytes in [40_000, 400_000, 4_000_000] {
        let layout = Arc::new(Layout::columnar(&[(bytes, 4)], 16));
        let cell = vec![3_u8; bytes];
        let mut window = std::collections::VecDeque::new();
        group.throughput(Throughput::Bytes(16 * bytes as u64));
        group.bench_function(BenchmarkId::new("chunks of 16 cells into a window of 16 chunks", bytes), |bencher| {
            bencher.iter(|| {
                let mut writer = ChunkWriter::new(layout.clone(), Compression::None, &meter);
                (0..16).for_each(|_| writer.push(0, &cell));
                window.push_back(writer.seal(&mut Chooser::new(Compression::None)));
                if window.len() > 16 {
                    window.pop_front();
                }
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = transitions, frames, payloads, pushes
}
criterion_main!(benches);
