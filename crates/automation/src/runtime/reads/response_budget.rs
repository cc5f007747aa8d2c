//! Limits how much plugin output a response holds, and runs large reads on blocking threads.

use std::io;

use consign_engine::Error;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::runtime::lifecycle::Runtime;

/// Once a response reaches this size, further entries come without their output.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
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
    pub(super) fn fit(&mut self, mut entry: Value) -> Value {
        let bytes = length(&entry);
        if bytes > self.bytes_left && self.has_large {
            drop_output(&mut entry);
            return entry;
        }
        self.has_large |= bytes > LARGE_ENTRY_BYTES;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        entry
    }
}

fn drop_output(entry: &mut Value) {
    if let Some(entry) = entry.as_object_mut() {
        entry.remove("result");
        entry.remove("stderr");
        entry.insert("output_left_out".to_owned(), json!(true));
    }
    if let Some(error) = entry["last_error"].as_str() {
        let beginning: String = error.chars().take(ERROR_CHARS_MAX).collect();
        entry["last_error"] = beginning.into();
    }
}

/// The length of the entry as JSON.
fn length(entry: &Value) -> usize {
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
    // Neither the counter nor JSON values can fail.
    let _ = serde_json::to_writer(&mut counter, entry);
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

    #[test]
    fn what_does_not_fit_comes_without_its_output_and_the_first_always_fits() {
        let entry = |bytes: usize| json!({"job_id": "a", "result": "x".repeat(bytes), "last_error": "y".repeat(500), "stderr": "z"});
        let mut budget = ResponseBudget::new();
        let first = budget.fit(entry(RESPONSE_BYTES_MAX + 1));
        assert_eq!(first, entry(RESPONSE_BYTES_MAX + 1));
        let second = budget.fit(entry(10));
        assert_eq!(
            second,
            json!({"job_id": "a", "last_error": "y".repeat(ERROR_CHARS_MAX), "output_left_out": true})
        );
        let mut budget = ResponseBudget::new();
        for _ in 0..7 {
            assert!(budget.fit(entry(1 << 20)).get("result").is_some());
        }
        assert!(budget.fit(entry(1 << 20)).get("result").is_none());
        assert!(budget.fit(entry(10)).get("result").is_some(), "a small one");
    }

    #[test]
    fn the_length_is_that_of_the_text_with_its_escapes() {
        let entry = json!({"a": "\u{1}\n\"", "b": [1, null]});
        assert_eq!(length(&entry), entry.to_string().len());
    }
}
