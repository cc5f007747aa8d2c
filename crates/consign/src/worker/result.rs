//! The result of a command: JSON if its standard output is JSON, else text.

use consign_client::Output;
use consign_kernel::json::{compact, utf8_len};
use consign_kernel::limits::{JSON_DEPTH_MAX, RESULT_BYTES_MAX};
use serde_json::value::RawValue;

use super::streams::CommandOutput;

/// The result is nested in the items of a request, whose depth counts too.
const DEPTH_MAX: usize = JSON_DEPTH_MAX - 8;

/// `None` if nothing was written. The error says why it cannot be a result.
pub(super) fn of(output: &CommandOutput) -> Result<Option<Output>, String> {
    if !output.is_whole() {
        return Err(too_large(output.length));
    }
    let bytes = output.bytes.as_slice();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if let Some((value, length)) = json(bytes) {
        return fitting(length, Output::Json(value));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| "its standard output is neither JSON nor text in UTF-8".to_owned())?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    fitting(text.len(), Output::Text(text.to_owned()))
}

/// The value without white space, and its length as the server counts it.
fn json(bytes: &[u8]) -> Option<(Box<RawValue>, usize)> {
    let text = compact(bytes, DEPTH_MAX).ok()?;
    let length = utf8_len(&text);
    Some((RawValue::from_string(text).ok()?, length))
}

fn fitting(length: usize, output: Output) -> Result<Option<Output>, String> {
    if length > RESULT_BYTES_MAX {
        return Err(too_large(length));
    }
    Ok(Some(output))
}

fn too_large(length: usize) -> String {
    format!(
        "its result has {length} bytes, the limit is {RESULT_BYTES_MAX}; keep large data elsewhere and print a reference"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        let output = CommandOutput {
            bytes: bytes.to_vec(),
            length: bytes.len(),
        };
        match of(&output) {
            Ok(None) => "none".to_owned(),
            Ok(Some(Output::Json(value))) => format!("json {value}"),
            Ok(Some(Output::Text(text))) => format!("text {text:?}"),
            Err(why) => why,
        }
    }

    #[test]
    fn json_is_json_and_everything_else_is_text() {
        assert_eq!(read(b" {\"n\": 1.50}\n"), "json {\"n\":1.50}");
        assert_eq!(read(b"17\n"), "json 17");
        assert_eq!(read(b"done\n"), "text \"done\"");
        assert_eq!(
            read(b"{\"n\": 1} and more\r\n"),
            "text \"{\\\"n\\\": 1} and more\""
        );
        assert_eq!(read(b" \n"), "none");
        assert_eq!(
            read(b"\xff\xfe"),
            "its standard output is neither JSON nor text in UTF-8"
        );
    }

    #[test]
    fn a_result_beyond_the_limit_is_named_with_its_size() {
        let fits = "x".repeat(RESULT_BYTES_MAX);
        assert_eq!(
            read(format!("{fits}\n").as_bytes()),
            format!("text {fits:?}")
        );
        let why = read(format!("{fits}y").as_bytes());
        assert!(
            why.starts_with("its result has 7169 bytes, the limit is 7168"),
            "{why}"
        );
        let cut = CommandOutput {
            bytes: Vec::new(),
            length: 9_000_000,
        };
        assert!(of(&cut).unwrap_err().contains("9000000 bytes"));
    }

    #[test]
    fn white_space_between_tokens_does_not_count() {
        let loose = format!("[1,{}2]", " ".repeat(RESULT_BYTES_MAX));
        assert_eq!(read(loose.as_bytes()), "json [1,2]");
    }
}
