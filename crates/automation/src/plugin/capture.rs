//! The output of a process, kept up to a bound and read to the end.
//!
//! What exceeds the bound is read and thrown away: a process must never wait for us to read.

use std::borrow::Cow;

use consign_kernel::plant::{self, Plant};
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The beginning of what was written.
    pub bytes: Vec<u8>,
    pub is_truncated: bool,
}

impl Captured {
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Until the other end closes. Given up half-way, what was read stays.
    pub(super) async fn read(&mut self, mut pipe: impl AsyncRead + Unpin, bytes_max: usize) {
        let bytes_max = if plant::on(Plant::UnboundedOutput) {
            usize::MAX
        } else {
            bytes_max
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        // A pipe that cannot be read any more has ended as well.
        while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
            let kept = length.min(bytes_max - self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..kept]);
            self.is_truncated |= kept < length;
        }
    }
}
