//! What a command writes: standard output as a result, and the end of standard error as the reason of a failure.
//!
//! Invariant: both are read to their end in bounded memory, so the command never blocks on a full pipe.

use std::collections::VecDeque;

use consign_kernel::limits::{ERROR_BYTES_MAX, RESULT_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncReadExt as _};

const CHUNK_BYTES: usize = 16 << 10;

/// White space between the tokens of JSON does not count as result, so more than the limit is read.
const OUTPUT_BYTES_MAX: usize = RESULT_BYTES_MAX * 64;

/// For the line before the text: how the command ended, and how much is missing.
const HEADING_BYTES_MAX: usize = 256;
const TAIL_BYTES_MAX: usize = ERROR_BYTES_MAX - HEADING_BYTES_MAX;

/// The beginning of standard output.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    pub(super) bytes: Vec<u8>,
    /// The length of all that was written.
    pub(super) length: usize,
}

impl CommandOutput {
    /// If cancelled, what was read so far is kept.
    pub(super) async fn read(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; CHUNK_BYTES];
        // A read error ends the output as well.
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            self.length += length;
            let kept = length.min(OUTPUT_BYTES_MAX - self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..kept]);
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.length == self.bytes.len()
    }
}

/// The end of standard error.
#[derive(Debug, Default)]
pub(super) struct ErrorTail {
    bytes: VecDeque<u8>,
    length: usize,
}

impl ErrorTail {
    /// If cancelled, what was read so far is kept.
    pub(super) async fn read(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            self.add(&chunk[..length]);
        }
    }

    fn add(&mut self, chunk: &[u8]) {
        self.length += chunk.len();
        self.bytes.extend(chunk);
        let over = self.bytes.len().saturating_sub(TAIL_BYTES_MAX);
        self.bytes.drain(..over);
    }

    /// How the command ended, and below it the end of what it wrote.
    pub(super) fn below(&self, how: &str) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        // The first bytes may be the rest of a character.
        let whole = bytes.iter().position(|byte| byte & 0xc0 != 0x80);
        let whole = if self.length > bytes.len() {
            &bytes[whole.unwrap_or(bytes.len())..]
        } else {
            &bytes[..]
        };
        let text = String::from_utf8_lossy(whole);
        // Bytes that are no text take more room as replacement characters.
        let from = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES_MAX));
        let text = text[from..].trim_end();
        if text.trim().is_empty() {
            return format!("{how}; it wrote nothing to standard error");
        }
        if from == 0 && self.length == bytes.len() {
            return format!("{how}\n{}", text.trim_start_matches('\n'));
        }
        format!(
            "{how}; the end of its standard error, which has {} bytes:\n{text}",
            self.length
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &[u8]) -> ErrorTail {
        let mut tail = ErrorTail::default();
        for chunk in text.chunks(1_000) {
            tail.add(chunk);
        }
        tail
    }

    #[test]
    fn a_short_error_is_kept_whole_below_its_cause() {
        assert_eq!(
            tail(b"no paper\nin tray 2\n").below("exit status 3"),
            "exit status 3\nno paper\nin tray 2"
        );
        assert_eq!(
            tail(b" \n").below("exit status 1"),
            "exit status 1; it wrote nothing to standard error"
        );
    }

    #[test]
    fn of_a_long_error_the_end_is_kept_and_the_server_need_not_cut_it() {
        for body in [
            "line\n".as_bytes(),
            "é".as_bytes(),
            "🦀".as_bytes(),
            b"\xff",
        ] {
            let mut text = body.repeat(ERROR_BYTES_MAX);
            text.extend_from_slice(b"KeyError: 'a'\n");
            let error = tail(&text).below("exit status 1");
            assert!(error.len() <= ERROR_BYTES_MAX, "{}", error.len());
            assert!(error.len() > ERROR_BYTES_MAX - 512, "{}", error.len());
            assert!(error.ends_with("KeyError: 'a'"), "{error}");
            let named = format!("which has {} bytes:\n", text.len());
            assert!(error.starts_with("exit status 1; ") && error.contains(&named));
            let replaced = error.contains('\u{fffd}');
            assert_eq!(replaced, body == b"\xff", "a character was split");
        }
    }
}
