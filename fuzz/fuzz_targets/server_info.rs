#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redlatch::fuzzing::server_info(data));
