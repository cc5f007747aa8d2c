//! Runs every stored input through its target: seeds, and inputs that failed once.
//!
//! Seeds cover the input format broadly; a file in `regressions/TARGET` is an input that failed, named after its fault.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails where it stands, and names its last input"
)]

use std::fs;
use std::path::{Path, PathBuf};

use consign_fuzz::{TARGETS, Target};

fn folder(kind: &str, target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(kind)
        .join(target.name)
}

/// Runs the inputs in the folder and returns their number.
fn replay(kind: &str, target: &Target) -> usize {
    let Ok(entries) = fs::read_dir(folder(kind, target)) else {
        return 0;
    };
    let mut inputs = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        (target.run)(&fs::read(&path).unwrap());
        inputs += 1;
    }
    inputs
}

#[test]
fn every_target_has_seeds_and_holds_for_them() {
    for target in TARGETS {
        assert!(replay("seeds", target) > 0, "{} has no seed", target.name);
    }
}

#[test]
fn no_input_that_once_failed_fails_again() {
    for target in TARGETS {
        replay("regressions", target);
    }
}

#[test]
fn every_folder_of_inputs_belongs_to_a_target() {
    for kind in ["seeds", "regressions"] {
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind);
        for entry in fs::read_dir(all).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(consign_fuzz::target(&name).is_some(), "{kind}/{name}");
        }
    }
}

#[test]
fn empty_and_random_bytes_hold_everywhere() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = vec![0; 600];
    for target in TARGETS {
        (target.run)(b"");
        for byte in &mut noise {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_le_bytes()[0];
        }
        (target.run)(&noise);
    }
}
