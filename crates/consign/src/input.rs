//! Arguments that may also come from a file (`@file`) or from standard input (`-`).
//!
//! Invariant: input is bounded, and JSON is checked but not rewritten.

use std::fs::File;
use std::io::Read;

use anyhow::Context;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// More than any server accepts, and small enough to hold in memory.
const INPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The text that `argument` stands for; `what` names it in errors.
pub(crate) fn text(what: &str, argument: &str) -> anyhow::Result<String> {
    match argument.strip_prefix('@') {
        _ if argument == "-" => bounded(what, std::io::stdin().lock())
            .with_context(|| format!("cannot read {what} from standard input")),
        Some(path) => file(what, path),
        None => Ok(argument.to_owned()),
    }
}

/// The contents of a file, or of standard input for `-`.
pub(crate) fn file(what: &str, path: &str) -> anyhow::Result<String> {
    if path == "-" {
        return text(what, path);
    }
    File::open(path)
        .map_err(anyhow::Error::new)
        .and_then(|file| bounded(what, file))
        .with_context(|| format!("cannot read {what} from {path}"))
}

/// JSON, exactly as it was written.
pub(crate) fn json(what: &str, argument: &str) -> anyhow::Result<Box<RawValue>> {
    let text = text(what, argument)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{what} is not JSON: {error}"))
            .hint(r#"quote it for the shell, like '{"to":"me"}'; a plain text is '"text"'"#)
            .into()
    })
}

fn bounded(what: &str, reader: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    reader.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(
            Failure::usage(format!("{what} is larger than {INPUT_BYTES_MAX} bytes")).into(),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_kept_as_written_and_checked() {
        let kept = json("payload", " {\"n\": 1.0,\n\"big\": 9007199254740993} ").unwrap();
        assert_eq!(kept.get(), "{\"n\": 1.0,\n\"big\": 9007199254740993}");
        let error = json("payload", "hello").unwrap_err().to_string();
        assert!(error.starts_with("payload is not JSON"), "{error}");
    }

    #[test]
    fn an_at_sign_names_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payload.json");
        std::fs::write(&path, "[1]\n").unwrap();
        let kept = json("payload", &format!("@{}", path.display())).unwrap();
        assert_eq!(kept.get(), "[1]");
        let error = json("payload", "@/no/such/file").unwrap_err();
        assert!(
            format!("{error:#}").starts_with("cannot read payload from /no/such/file: "),
            "{error:#}"
        );
    }
}
