//! See `src/message.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    reverie_fuzz::message::check(input);
});
