//! Server-sent events: the loop of a stream, for any source of events.
//!
//! Invariant: a stream holds at most two pages, however slow its reader is: one being sent and one that waits. It ends when the
//! reader disconnects, its credential is revoked, the server drains or the source fails.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderValue, header};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::channel_body::ChannelBody;
use crate::presence::Presence;

const PAGES_AHEAD: usize = 1;
/// The longest time without a byte.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Where the events of one stream come from. The source also holds what the stream occupies, such as its slot.
pub trait StreamSource: Send + 'static {
    /// The id after which a reader continues that disconnects before the first event.
    fn position(&self) -> String;

    /// Whether the reader may still read. Called after a page was read and before it is sent: what was read after the credential
    /// was revoked is not sent.
    fn is_authorized(&self) -> impl Future<Output = bool> + Send;

    /// The next page; an empty text if there is none now. `None` ends the stream. A change from the beginning of this call on must
    /// complete the next [`StreamSource::changed`].
    fn next_page(&mut self) -> impl Future<Output = Option<StreamPage>> + Send;

    /// Completes when there may be a new page; false ends the stream.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;
}

/// Some events in their wire form; see [`block`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPage {
    pub text: String,
    /// More events are available now.
    pub more: bool,
}

/// One event. Without an id, a reader keeps the last one that it received. `data` must be one line.
pub fn block(id: Option<&str>, event: &str, data: &str) -> String {
    match id {
        Some(id) => format!("id: {id}\nevent: {event}\ndata: {data}\n\n"),
        None => format!("event: {event}\ndata: {data}\n\n"),
    }
}

/// The response whose body is the stream. It runs in a task of its own.
pub fn respond(
    source: impl StreamSource,
    draining: watch::Receiver<bool>,
    presence: Presence,
) -> Response {
    let (pages, body) = ChannelBody::new(PAGES_AHEAD);
    tokio::spawn(run(source, pages, draining, presence));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

async fn run(
    mut source: impl StreamSource,
    pages: mpsc::Sender<Bytes>,
    draining: watch::Receiver<bool>,
    presence: Presence,
) {
    let mut reader = StreamReader {
        pages,
        draining,
        heartbeat: heartbeat(),
        gone: pin!(presence.hung_up()),
    };
    // `None` only says that the stream is over.
    let _ = reader.stream(&mut source).await;
}

/// The reader's side of a stream. Every method returns `None` when the stream is over.
struct StreamReader<'p, G> {
    pages: mpsc::Sender<Bytes>,
    draining: watch::Receiver<bool>,
    heartbeat: Interval,
    /// Completes when the client disconnects. Without it only the second heartbeat after that would fail.
    gone: Pin<&'p mut G>,
}

impl<G: Future<Output = ()>> StreamReader<'_, G> {
    async fn stream(&mut self, source: &mut impl StreamSource) -> Option<()> {
        // A block without data is no event, but sets the last event id: a reader that reconnects before the first event
        // continues here.
        let connected = format!(": connected\nid: {}\n\n", source.position());
        self.send(connected).await?;
        loop {
            if self.pages.is_closed() || *self.draining.borrow() {
                return None;
            }
            let page = {
                let mut reading = pin!(source.next_page());
                // A read may last longer than a heartbeat.
                loop {
                    tokio::select! {
                        page = &mut reading => break page?,
                        alive = self.beat() => alive?,
                    }
                }
            };
            if !source.is_authorized().await {
                return None;
            }
            if !page.text.is_empty() {
                self.send(page.text).await?;
            }
            if page.more {
                continue;
            }
            tokio::select! {
                goes_on = source.changed() => if !goes_on { return None },
                alive = self.beat() => alive?,
            }
        }
    }

    async fn send(&mut self, text: String) -> Option<()> {
        tokio::select! {
            biased;
            () = &mut self.gone => None,
            sent = self.pages.send(Bytes::from(text)) => {
                self.heartbeat.reset();
                sent.ok()
            }
        }
    }

    /// Sends a heartbeat when nothing was sent for a while.
    async fn beat(&mut self) -> Option<()> {
        tokio::select! {
            _ = self.heartbeat.tick() => {}
            () = drained(&mut self.draining) => return None,
            () = self.pages.closed() => return None,
            () = &mut self.gone => return None,
        }
        self.pages
            .send(Bytes::from_static(b": still here\n\n"))
            .await
            .ok()
    }
}

fn heartbeat() -> Interval {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

/// Completes when the server drains.
pub async fn drained(draining: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    let _ = draining.wait_for(|draining| *draining).await;
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// Numbered events, as many as are allowed so far. A negative number revokes the credential.
    struct Numbers {
        sent: i32,
        allowed: watch::Receiver<i32>,
    }

    impl StreamSource for Numbers {
        fn position(&self) -> String {
            self.sent.to_string()
        }

        async fn is_authorized(&self) -> bool {
            *self.allowed.borrow() >= 0
        }

        async fn next_page(&mut self) -> Option<StreamPage> {
            let allowed = *self.allowed.borrow_and_update();
            if self.sent >= allowed {
                return Some(StreamPage::default());
            }
            self.sent += 1;
            Some(StreamPage {
                text: block(Some(&self.sent.to_string()), "number", "{}"),
                more: self.sent < allowed,
            })
        }

        async fn changed(&mut self) -> bool {
            self.allowed.changed().await.is_ok()
        }
    }

    async fn next(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.unwrap();
        let bytes = frame.into_data().unwrap();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_sends_pages_and_heartbeats_until_it_is_revoked_or_the_server_drains() {
        for is_drained in [true, false] {
            let (allow, allowed) = watch::channel(2);
            let (drain, draining) = watch::channel(false);
            let numbers = Numbers { sent: 0, allowed };
            let mut body = respond(numbers, draining, Presence::default()).into_body();
            let began = Instant::now();
            assert_eq!(next(&mut body).await.unwrap(), ": connected\nid: 0\n\n");
            for id in 1..=2 {
                let expected = format!("id: {id}\nevent: number\ndata: {{}}\n\n");
                assert_eq!(next(&mut body).await.unwrap(), expected);
            }
            assert_eq!(began.elapsed(), Duration::ZERO);
            assert_eq!(next(&mut body).await.unwrap(), ": still here\n\n");
            assert_eq!(began.elapsed(), HEARTBEAT);
            allow.send_replace(3);
            assert!(next(&mut body).await.unwrap().starts_with("id: 3\n"));
            if is_drained {
                drain.send_replace(true);
            } else {
                allow.send_replace(-1);
            }
            assert_eq!(next(&mut body).await, None);
            assert_eq!(began.elapsed(), HEARTBEAT);
        }
    }

    /// Its credential is revoked while a page is read.
    struct RevokedWhileReading {
        is_revoked: bool,
    }

    impl StreamSource for RevokedWhileReading {
        fn position(&self) -> String {
            "0".to_owned()
        }

        async fn is_authorized(&self) -> bool {
            !self.is_revoked
        }

        async fn next_page(&mut self) -> Option<StreamPage> {
            self.is_revoked = true;
            Some(StreamPage {
                text: block(Some("1"), "number", "{}"),
                more: false,
            })
        }

        async fn changed(&mut self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_page_that_was_read_after_the_credential_was_revoked_is_not_sent() {
        let (_drain, draining) = watch::channel(false);
        let source = RevokedWhileReading { is_revoked: false };
        let mut body = respond(source, draining, Presence::default()).into_body();
        assert_eq!(next(&mut body).await.unwrap(), ": connected\nid: 0\n\n");
        assert_eq!(next(&mut body).await, None);
    }

    #[test]
    fn an_event_without_an_id_has_no_id_line() {
        assert_eq!(block(None, "tick", "{}"), "event: tick\ndata: {}\n\n");
    }
}
