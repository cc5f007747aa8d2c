//! Limits how much plugin output a response holds, and runs large reads on blocking threads.

use std::io;

use consign_engine::Error;
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::runtime::lifecycle::Runtime;

/// Once a response reaches this size, further entries come without their output.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// About the size of an entry without texts.
const FIELDS_BYTES: usize = 512;
/// Larger than any entry without output.
const LARGE_ENTRY_BYTES: usize = 64 << 10;
/// How much of an error remains in an entry without output.
const ERROR_CHARS_MAX: usize = 300;
/// The maximum number of concurrent large reads; others wait.
pub(in crate::runtime) const LARGE_READS_MAX: usize = 2;

/// The bytes that a response may still use.
pub(super) struct ResponseBudget {
    bytes_left: usize,
    has_large: bool,
}

impl ResponseBudget {
    pub(super) fn new() -> Self {
        Self {
            bytes_left: RESPONSE_BYTES_MAX,
            has_large: false,
        }
    }

    /// Returns the entry unchanged if it fits, and otherwise without its output. The first large entry always fits, because the
    /// output of one attempt is bounded.
    pub(super) fn fit<T: PluginOutput>(&mut self, mut entry: T) -> T {
        let (result, stderr, error) = entry.texts();
        let stderr_bytes = stderr.and_then(|stderr| stderr.as_deref().map(json_bytes));
        let error_bytes = error.as_deref().map(json_bytes);
        let bytes = FIELDS_BYTES
            + result.as_deref().map_or(0, result_bytes)
            + stderr_bytes.unwrap_or(0)
            + error_bytes.unwrap_or(0);
        if bytes > self.bytes_left && self.has_large {
            drop_output(&mut entry);
            return entry;
        }
        self.has_large |= bytes > LARGE_ENTRY_BYTES;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        entry
    }
}

/// An entry with output of a plugin, which may be large.
pub(super) trait PluginOutput {
    /// The standard output, the standard error if the entry has it, and the error.
    fn texts(
        &mut self,
    ) -> (
        &mut Option<String>,
        Option<&mut Option<String>>,
        &mut Option<String>,
    );

    fn mark_left_out(&mut self);
}

fn drop_output(entry: &mut impl PluginOutput) {
    let (result, stderr, error) = entry.texts();
    *result = None;
    if let Some(stderr) = stderr {
        *stderr = None;
    }
    if let Some(error) = error {
        *error = error.chars().take(ERROR_CHARS_MAX).collect();
    }
    entry.mark_left_out();
}

/// The size of the output in a response: as JSON prints it if it is JSON, otherwise as a text.
fn result_bytes(stdout: &str) -> usize {
    match serde_json::from_str::<Value>(stdout) {
        // A number may be printed with more digits than it was written with.
        Ok(result) => json_bytes(&result),
        Err(_) => json_bytes(stdout),
    }
}

/// The length of a value as JSON, with its escapes.
fn json_bytes<T: Serialize + ?Sized>(value: &T) -> usize {
    struct ByteCounter(usize);
    impl io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    // Neither the counter nor a value with string keys can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

impl Runtime {
    /// Runs a read that may go through many megabytes on a blocking thread, so that it delays no other request.
    pub async fn run_blocking<T, E>(
        &self,
        read: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        // The semaphore is never closed.
        let _turn = self.inner.large_reads.acquire().await;
        let handle = Handle::current();
        let read = tokio::task::spawn_blocking(move || handle.block_on(read));
        let broken = |error: tokio::task::JoinError| Error::Internal(error.to_string());
        read.await.map_err(broken)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Entry {
        result: Option<String>,
        stderr: Option<String>,
        error: Option<String>,
        left_out: bool,
    }

    impl PluginOutput for Entry {
        fn texts(
            &mut self,
        ) -> (
            &mut Option<String>,
            Option<&mut Option<String>>,
            &mut Option<String>,
        ) {
            (&mut self.result, Some(&mut self.stderr), &mut self.error)
        }

        fn mark_left_out(&mut self) {
            self.left_out = true;
        }
    }

    fn entry(bytes: usize) -> Entry {
        Entry {
            result: Some("x".repeat(bytes)),
            stderr: Some("z".to_owned()),
            error: Some("y".repeat(500)),
            left_out: false,
        }
    }

    #[test]
    fn what_does_not_fit_comes_without_its_output_and_the_first_always_fits() {
        let mut budget = ResponseBudget::new();
        let first = budget.fit(entry(RESPONSE_BYTES_MAX + 1));
        assert_eq!(first, entry(RESPONSE_BYTES_MAX + 1));
        let second = budget.fit(entry(10));
        let without = Entry {
            result: None,
            stderr: None,
            error: Some("y".repeat(ERROR_CHARS_MAX)),
            left_out: true,
        };
        assert_eq!(second, without);
        let mut budget = ResponseBudget::new();
        for _ in 0..7 {
            assert!(budget.fit(entry(1 << 20)).result.is_some());
        }
        assert!(budget.fit(entry(1 << 20)).result.is_none());
        assert!(budget.fit(entry(10)).result.is_some(), "a small one");
    }

    #[test]
    fn the_length_is_that_of_the_text_with_its_escapes() {
        for text in ["\u{1}\n\"", "plain", ""] {
            assert_eq!(json_bytes(text), serde_json::json!(text).to_string().len());
        }
        assert_eq!(result_bytes("[1,null]"), 8);
        assert_eq!(result_bytes("\u{1}"), 8);
    }
}
