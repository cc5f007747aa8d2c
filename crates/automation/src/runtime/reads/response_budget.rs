//! How much an answer may hold of what plugins printed, and reads that take long on threads where they hold up nobody.

use std::io;

use consign_engine::Error;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::runtime::lifecycle::Runtime;

/// Once the entries of an answer come to so much, further ones come without their output.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// More than an entry has that tells no output.
const LARGE_ENTRY_BYTES: usize = 64 << 10;
/// What is left of an error in an entry without its output.
const ERROR_CHARS_MAX: usize = 300;
/// Reads of many megabytes at the same time; whoever comes next waits.
pub(in crate::runtime) const LARGE_READS_MAX: usize = 2;

/// What an answer has budget for.
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

    /// The entry as it is if there is budget for it, and otherwise without what it printed. The first large one always has budget:
    /// what one attempt prints is bounded itself.
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

/// Of the entry as JSON.
fn length(entry: &Value) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Nothing here can fail: neither the counter nor texts and JSON values.
    let _ = serde_json::to_writer(&mut counter, entry);
    counter.0
}

impl Runtime {
    /// Carries out a read that may have many megabytes to go through, on a thread where it holds up no other request.
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
