//! libFuzzer over one of the targets, named by `--target=NAME`. All other arguments are libFuzzer's own.
//!
//! `cargo xtask fuzz` builds it with coverage instrumentation and starts it.

#![no_main]

use std::sync::LazyLock;

use consign_fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let mut words = std::env::args();
    let name = words.find_map(|word| word.strip_prefix("--target=").map(str::to_owned));
    let name = name.expect("an argument --target=NAME");
    consign_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
