//! A response body whose chunks come from a task.
//!
//! It ends when the task drops its sender. The task notices a disconnected client because its sender is closed.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

#[derive(Debug)]
pub struct ChannelBody(mpsc::Receiver<Bytes>);

impl ChannelBody {
    /// `ahead` chunks may wait for a slow reader before the sender waits.
    pub fn new(ahead: usize) -> (mpsc::Sender<Bytes>, Self) {
        let (sender, pages) = mpsc::channel(ahead);
        (sender, Self(pages))
    }
}

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|page| page.map(|page| Ok(Frame::data(page))))
    }
}
