//! The `#!` line of a script, whose interpreter the system needs before anything of the script runs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// More than systems read of it.
const LINE_BYTES_MAX: u64 = 4096;
const CARRIAGE_RETURN: &str = "its first line ends with a carriage return, which the system takes for a part of the \
     interpreter's name; save the file with plain line ends, such as with `sed -i 's/\\r$//'`";

/// What keeps the system from starting this script; `None` of a program, and of a file that cannot be read.
pub fn why_unusable(script: &Path) -> Option<String> {
    // A named pipe would hold us up until somebody writes to it.
    if !script.metadata().ok()?.is_file() {
        return None;
    }
    let mut line = Vec::new();
    let mut file = BufReader::new(File::open(script).ok()?.take(LINE_BYTES_MAX));
    file.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_prefix(b"#!")?;
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.ends_with(b"\r") {
        return Some(CARRIAGE_RETURN.to_owned());
    }
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t'));
    let interpreter = words.find(|word| !word.is_empty())?;
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    // What a path from the working directory means is not known here.
    (interpreter.is_absolute() && !interpreter.exists()).then(|| {
        let interpreter = interpreter.display();
        format!(
            "the interpreter {interpreter} in its first line is missing; install it or correct the `#!` line"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_without_a_usable_interpreter_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let judged = |text: &str| {
            let path = dir.path().join("run");
            std::fs::write(&path, text).unwrap();
            why_unusable(&path)
        };
        assert_eq!(judged("#!/bin/sh\necho\r\n"), None);
        assert_eq!(judged("#! /usr/bin/env -S sh -e\n"), None);
        assert_eq!(judged("\x7fELF"), None);
        assert_eq!(judged(""), None);
        let missing = judged("#!/opt/nope/python -u\n").unwrap();
        assert!(
            missing.contains("the interpreter /opt/nope/python in"),
            "{missing}"
        );
        for script in ["#!/bin/sh\r\necho\r\n", "#!/usr/bin/env bash\r\n"] {
            assert!(judged(script).unwrap().contains("carriage return"));
        }
    }
}
