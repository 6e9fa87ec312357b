//! See `src/batch_head.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    reverie_fuzz::batch_head::check(input);
});
