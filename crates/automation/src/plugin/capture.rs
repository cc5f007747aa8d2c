//! Captures the output of a process up to a limit.
//!
//! Output beyond the limit is read and dropped, so that the process never blocks on a full pipe.

use std::borrow::Cow;

use consign_kernel::plant::{self, Plant};
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The beginning of the output.
    pub bytes: Vec<u8>,
    pub is_truncated: bool,
}

impl Captured {
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Reads until the pipe is closed. If cancelled, the bytes read so far are kept.
    pub(super) async fn read(&mut self, mut pipe: impl AsyncRead + Unpin, bytes_max: usize) {
        let bytes_max = if plant::on(Plant::UnboundedOutput) {
            usize::MAX
        } else {
            bytes_max
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        // A read error ends the output as well.
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            let kept = length.min(bytes_max - self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..kept]);
            self.is_truncated |= kept < length;
        }
    }
}
