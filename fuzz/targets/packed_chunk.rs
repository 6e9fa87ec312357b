//! See `src/packed_chunk.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    reverie_fuzz::packed_chunk::check(input);
});
