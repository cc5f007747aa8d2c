//! The task of one socket: its handler and its driver, from the upgrade to the end of both.
//!
//! Invariant: the stream and the slots are free as soon as the socket is closed, also if the handler still runs. The
//! task holds a receiver of the server's phase, so the drain waits for the handler; when the drain time is over, both
//! are dropped.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::channel::{SocketChannel, SocketMessages, SocketSender};
use super::close::CloseCode;
use super::driver::{SocketDriver, SocketEnd};
use super::{Options, SHUTDOWN_REASON};
use crate::connections::SocketSlot;
use crate::panic;
use crate::server::ServerPhase;

pub(super) struct SocketTask {
    pub(super) on_upgrade: OnUpgrade,
    pub(super) slot: SocketSlot,
    pub(super) phase: watch::Receiver<ServerPhase>,
    pub(super) options: Options,
}

impl SocketTask {
    pub(super) async fn run<H, F>(self, handler: H)
    where
        H: FnOnce(SocketSender, SocketMessages) -> F,
        F: Future<Output = ()>,
    {
        let Self {
            on_upgrade,
            slot,
            mut phase,
            options,
        } = self;
        let stream = match on_upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => {
                tracing::debug!(%error, "a client disconnected before its upgrade");
                return;
            }
        };
        let (channel, sender, messages) = SocketChannel::new(options);
        let mut open = Some((SocketDriver::new(stream, channel, &options), slot));
        // Closes of the handler and of this task take the same way, so that the first one counts.
        let own = sender.clone();
        let mut handler = pin!(caught(async move { handler(sender, messages).await }));
        let mut is_handled = false;
        let mut is_draining = false;
        while open.is_some() || !is_handled {
            if !is_draining && *phase.borrow() == ServerPhase::Draining {
                is_draining = true;
                own.close(CloseCode::GOING_AWAY, SHUTDOWN_REASON);
            }
            tokio::select! {
                biased;
                changed = phase.changed() => match (changed, *phase.borrow()) {
                    // Either the drain time is over, or the server's future was dropped.
                    (_, ServerPhase::Cut) | (Err(_), _) => return,
                    (Ok(()), ServerPhase::Serving | ServerPhase::Draining) => {}
                },
                panicked = &mut handler, if !is_handled => {
                    is_handled = true;
                    match panicked {
                        Ok(()) => own.close(CloseCode::NORMAL, ""),
                        Err(panicked) => {
                            let panicked = panic::text(&*panicked);
                            tracing::error!(panic = panicked, "the handler of a WebSocket panicked");
                            own.close(CloseCode::INTERNAL_ERROR, "Internal error");
                        }
                    }
                }
                end = driven(&mut open), if open.is_some() => {
                    tracing::debug!(%end, "a WebSocket ended");
                    open = None;
                }
            }
        }
    }
}

/// Completes when the socket of `open` ends.
async fn driven<T, S>(open: &mut Option<(SocketDriver<T>, S)>) -> SocketEnd
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|cx| match open {
        Some((driver, _)) => driver.poll(cx),
        None => Poll::Pending,
    })
    .await
}

/// Catches a panic, as the layer around handlers of requests does.
async fn caught(handler: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
    let mut handler = pin!(handler);
    poll_fn(|cx| {
        // A handler that panicked is not polled again.
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
            Ok(handled) => handled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    })
    .await
}
