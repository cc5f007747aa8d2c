//! Checks the `#!` line of a script, whose interpreter must exist before the script can run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// More than any kernel reads of the line.
const LINE_BYTES_MAX: u64 = 4096;
const CARRIAGE_RETURN: &str = "its first line ends with a carriage return, which the system takes as part of the \
     interpreter's name; save the file with LF line endings, such as with `sed -i 's/\\r$//'`";

/// Why the kernel cannot start this script; `None` for a binary, and for a file that cannot be read. Programs for `env` are
/// searched in `search_path`, the `PATH` of plugins, if known.
pub fn why_unusable(script: &Path, search_path: Option<&OsStr>) -> Option<String> {
    // A named pipe would block until something writes to it.
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
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(|byte| is_blank(*byte))
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    // The meaning of a relative path is unknown here.
    if interpreter.is_absolute() && !interpreter.exists() {
        return Some(missing(interpreter));
    }
    let is_env = interpreter.file_name().is_some_and(|name| name == "env");
    let search_path = search_path.filter(|_| is_env)?;
    not_found_by_env(argument.trim_ascii(), search_path)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn missing(interpreter: &Path) -> String {
    let interpreter = interpreter.display();
    format!(
        "the interpreter {interpreter} in its first line is missing; install it or correct the `#!` line"
    )
}

/// The kernel passes everything after `env` as one argument, which is a program name unless it starts with an option.
fn not_found_by_env(argument: &[u8], search_path: &OsStr) -> Option<String> {
    let program = match argument.strip_prefix(b"-S") {
        Some(split) => {
            let words = split.split(|byte| is_blank(*byte));
            let mut words = words.filter(|word| !word.is_empty() && !word.contains(&b'='));
            words.next()?
        }
        None => argument,
    };
    if program.is_empty() || program.starts_with(b"-") {
        return None;
    }
    let program = Path::new(OsStr::from_bytes(program));
    let mut bytes = program.as_os_str().as_bytes().iter();
    let is_one = !bytes.any(|byte| is_blank(*byte));
    let mut places = std::env::split_paths(search_path);
    if places.any(|place| place.join(program).is_file()) {
        return None;
    }
    let shown = program.display();
    Some(if is_one {
        format!("`env` finds no program `{shown}` in PATH; install it or correct the `#!` line")
    } else {
        format!(
            "`env` treats `{shown}` as the name of one program; write `#!/usr/bin/env -S {shown}`"
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
            why_unusable(&path, Some(OsStr::new("/usr/bin:/bin")))
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
        for script in ["#!/usr/bin/env nope\n", "#!/usr/bin/env -S A=1 nope -u\n"] {
            let why = judged(script).unwrap();
            assert!(why.contains("finds no program `nope`"), "{why}");
        }
        let two = judged("#!/usr/bin/env sh -e\n").unwrap();
        assert!(two.contains("write `#!/usr/bin/env -S sh -e`"), "{two}");
        for script in [
            "#!/usr/bin/env sh\n",
            "#!/usr/bin/env -i sh\n",
            "#!/usr/bin/env\n",
        ] {
            assert_eq!(judged(script), None, "{script}");
        }
        for script in ["#!/bin/sh\r\necho\r\n", "#!/usr/bin/env bash\r\n"] {
            assert!(judged(script).unwrap().contains("carriage return"));
        }
    }
}
