//! The time limits of one socket, with one timer of the runtime.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::super::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerEvent {
    PingDue,
    /// The client has sent nothing for too long.
    Silent,
    /// A write has made no progress for too long.
    WriteBlocked,
    CloseOver,
}

#[derive(Debug)]
pub(super) struct SocketTimers {
    ping_interval: Duration,
    silence_timeout: Duration,
    write_timeout: Duration,
    close_timeout: Duration,
    ping_at: Instant,
    heard_at: Instant,
    /// Since when a write is blocked.
    blocked_at: Option<Instant>,
    closing_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl SocketTimers {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        let ping_at = now + options.ping_interval;
        Self {
            ping_interval: options.ping_interval,
            silence_timeout: options.silence_timeout,
            write_timeout: options.write_timeout,
            close_timeout: options.close_timeout,
            ping_at,
            heard_at: now,
            blocked_at: None,
            closing_at: None,
            timer: Box::pin(sleep_until(ping_at)),
        }
    }

    pub(super) fn heard(&mut self) {
        self.heard_at = Instant::now();
    }

    pub(super) fn write_blocked(&mut self) {
        self.blocked_at.get_or_insert_with(Instant::now);
    }

    pub(super) const fn write_progressed(&mut self) {
        self.blocked_at = None;
    }

    /// From now on only the end matters.
    pub(super) fn begin_close(&mut self) {
        self.closing_at.get_or_insert_with(Instant::now);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TimerEvent> {
        loop {
            let (at, event) = self.next();
            if at <= Instant::now() {
                if event == TimerEvent::PingDue {
                    self.ping_at = Instant::now() + self.ping_interval;
                }
                return Poll::Ready(event);
            }
            // A deadline that moves back needs no new timer: it is looked at when the timer expires.
            if at < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(at);
            }
            ready!(self.timer.as_mut().poll(cx));
        }
    }

    fn next(&self) -> (Instant, TimerEvent) {
        if let Some(closing_at) = self.closing_at {
            return (closing_at + self.close_timeout, TimerEvent::CloseOver);
        }
        let ping = (self.ping_at, TimerEvent::PingDue);
        let silent = (self.heard_at + self.silence_timeout, TimerEvent::Silent);
        let blocked = self
            .blocked_at
            .map(|at| (at + self.write_timeout, TimerEvent::WriteBlocked));
        let earlier = |one: (Instant, TimerEvent), other: (Instant, TimerEvent)| {
            if other.0 < one.0 { other } else { one }
        };
        let next = earlier(ping, silent);
        blocked.map_or(next, |blocked| earlier(next, blocked))
    }
}
