//! The fuzzers' checks on their corpora, and on inputs that are changed at random: `make fuzz` searches for longer.

#[path = "../../../../fuzz/src/lib.rs"]
mod checks;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use std::path::Path;

/// Inputs of each target besides those of its corpus.
const CHANGED: usize = 2_000;

/// Checks every input of a target's corpus, and changed ones, of which some are refused and some are not.
/// An input that fails is printed before the panic.
fn run(target: &str, check: impl Fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(corpus.len() > 1, "no corpus of {target}");
    assert!(corpus.iter().filter(|input| check(input)).count() > 0, "all of the corpus of {target} is refused");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut below = |most: usize| random.next_u64() as usize % most.max(1);
    let mut taken = 0;
    for _ in 0..CHANGED {
        let mut input = corpus[below(corpus.len())].clone();
        for _ in 0..=below(4) {
            let at = below(input.len());
            match below(4) {
                0 => input.truncate(at),
                1 => input.insert(at, below(256) as u8),
                2 if !input.is_empty() => input[at] ^= 1 << below(8),
                _ if !input.is_empty() => input[at] = below(256) as u8,
                _ => {}
            }
        }
        let failed = InputOnPanic { input: &input };
        taken += usize::from(check(&input));
        std::mem::forget(failed);
    }
    assert!((CHANGED / 100..CHANGED).contains(&taken), "{taken} of {CHANGED} were taken for {target}");
}

struct InputOnPanic<'a> {
    input: &'a [u8],
}

impl Drop for InputOnPanic<'_> {
    fn drop(&mut self) {
        println!("the input: {:?}", self.input);
    }
}

#[test]
fn the_head_of_a_batch_is_refused_or_can_be_laid_out() {
    run("batch_head", checks::batch_head::check);
}

#[test]
fn a_message_is_decoded_with_the_bound_on_its_memory_as_without() {
    // `tests/heads.rs` measures the memory.
    run("head", |input| {
        checks::head::check(input, |decode| {
            decode();
            0
        })
    });
}

#[test]
fn the_inserts_of_a_connection_are_refused_or_bring_items_that_can_be_gathered() {
    run("insert", checks::insert::check);
}

#[test]
fn a_message_that_decodes_is_the_same_encoded_again() {
    run("message", checks::message::check);
}

#[test]
fn a_packed_chunk_is_refused_or_each_of_its_cells_can_be_read() {
    run("packed_chunk", checks::packed_chunk::check);
}
