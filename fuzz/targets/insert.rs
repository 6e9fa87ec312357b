//! See `src/insert.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    reverie_fuzz::insert::check(input);
});
