//! Reads a whole request body, within a size and a time limit.
//!
//! Invariant: memory grows with the received bytes, never with the announced length, and stays below the limit plus
//! one frame; all request bodies together stay within one budget. After `TooLarge`, `TooSlow` or `NoRoom` the rest is
//! left unread; the server then closes the connection so that the response still reaches the client (see `linger`),
//! for which the status must be 413, 408 or 503.

use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http::Extensions;
use http::StatusCode;
use http_body_util::BodyExt as _;

use super::body_budget::{BodyReservation, BodySender};
use super::connections::client;
use super::server::Peer;

/// The default time limit of a body.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body is larger than the limit; send less")]
    TooLarge,
    #[error("the body did not arrive in time; send it again")]
    TooSlow,
    #[error("the body ended early or is malformed; send it again")]
    Broken,
    #[error("the server is receiving as many bodies as it has memory for; try again shortly")]
    NoRoom,
}

/// How long a client should wait after [`BodyError::NoRoom`].
pub const NO_ROOM_RETRY_AFTER_S: u32 = 1;

impl BodyError {
    /// The status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A request body, which counts in the budget until it is dropped.
#[derive(Debug, Default)]
pub struct ReceivedBody {
    bytes: Bytes,
    _reservation: Option<BodyReservation>,
}

impl Deref for ReceivedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The sender of a body without a key: the address of the connection. A Unix socket has no address.
pub fn sender(extensions: &Extensions) -> BodySender {
    match extensions.get::<Peer>() {
        Some(peer) => BodySender::Address(client(peer.addr.ip())),
        None => BodySender::Trusted,
    }
}

/// Reads the body of a request, if it has at most `limit` bytes, arrives within `deadline`, and fits into the budget.
pub async fn receive(
    body: Body,
    limit: usize,
    deadline: Duration,
    holder: BodySender,
) -> Result<ReceivedBody, BodyError> {
    if body.is_end_stream() {
        return Ok(ReceivedBody::default());
    }
    let mut reservation = BodyReservation::new(holder);
    let bytes = read_reserving(body, limit, deadline, Some(&mut reservation)).await?;
    Ok(ReceivedBody {
        bytes,
        _reservation: Some(reservation),
    })
}

/// Like [`receive`], for bodies that are not requests, such as responses in tests: nothing is reserved.
pub async fn read(body: Body, limit: usize, deadline: Duration) -> Result<Bytes, BodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    read_reserving(body, limit, deadline, None).await
}

async fn read_reserving(
    body: Body,
    limit: usize,
    deadline: Duration,
    mut reservation: Option<&mut BodyReservation>,
) -> Result<Bytes, BodyError> {
    // With Content-Length the size is known before the first byte. Refusing here also spares a client with `Expect:
    // 100-continue` the upload.
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let announced = usize::try_from(announced).unwrap_or(limit);
    grow(&mut reservation, announced)?;
    let collected = collect(body, limit, announced, reservation);
    match tokio::time::timeout(deadline, collected).await {
        Ok(collected) => collected,
        Err(_elapsed) => Err(BodyError::TooSlow),
    }
}

fn grow(reservation: &mut Option<&mut BodyReservation>, bytes: usize) -> Result<(), BodyError> {
    let Some(reservation) = reservation else {
        return Ok(());
    };
    let grown = reservation.grow_to(bytes);
    grown.map_err(|_no_room| BodyError::NoRoom)
}

async fn collect(
    mut body: Body,
    limit: usize,
    announced: usize,
    mut reservation: Option<&mut BodyReservation>,
) -> Result<Bytes, BodyError> {
    let Some(first) = next_chunk(&mut body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        return Err(BodyError::TooLarge);
    }
    grow(&mut reservation, first.len())?;
    // Most bodies arrive in one read of the socket and are returned without a copy.
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = next_chunk(&mut body).await? else {
        return Ok(first);
    };
    let mut whole = Vec::from(first);
    let mut chunk = second;
    loop {
        if chunk.len() > limit - whole.len() {
            return Err(BodyError::TooLarge);
        }
        let length = whole.len() + chunk.len();
        grow(&mut reservation, length)?;
        if length > whole.capacity() {
            // Doubled as usual, but never beyond the announced length.
            let wanted = (2 * whole.capacity()).min(announced.max(length));
            whole.reserve_exact(wanted.max(length) - whole.len());
        }
        whole.extend_from_slice(&chunk);
        match next_chunk(&mut body).await? {
            Some(next) => chunk = next,
            None => return Ok(whole.into()),
        }
    }
}

/// The next data frame of `body`. Trailers are ignored.
async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_cut_or_malformed| BodyError::Broken)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use hyper::body::Frame;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body of unannounced length.
    struct Chunks {
        left: VecDeque<io::Result<Frame<Bytes>>>,
        stalls: bool,
    }

    impl hyper::body::Body for Chunks {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            match self.left.pop_front() {
                None if self.stalls => Poll::Pending,
                next => Poll::Ready(next),
            }
        }
    }

    fn chunks(chunks: &[&'static str]) -> Chunks {
        let frame = |chunk: &&'static str| Ok(Frame::data(Bytes::from_static(chunk.as_bytes())));
        Chunks {
            left: chunks.iter().map(frame).collect(),
            stalls: false,
        }
    }

    async fn within(limit: usize, body: Chunks) -> Result<Bytes, BodyError> {
        read(Body::new(body), limit, SECOND).await
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole() {
        let parts = chunks(&["ab", "cd", "e"]);
        assert_eq!(within(5, parts).await.unwrap(), "abcde");
        assert_eq!(within(5, chunks(&["abcde"])).await.unwrap(), "abcde");
        assert_eq!(within(0, chunks(&[])).await.unwrap(), "");
        assert_eq!(read(Body::empty(), 0, SECOND).await.unwrap(), "");
        assert_eq!(read(Body::from("abc"), 3, SECOND).await.unwrap(), "abc");

        let mut trailed = chunks(&["ab", "c"]);
        trailed
            .left
            .push_back(Ok(Frame::trailers(http::HeaderMap::new())));
        assert_eq!(within(3, trailed).await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn one_byte_more_is_refused_announced_or_not() {
        let too_large = Err(BodyError::TooLarge);
        assert_eq!(within(4, chunks(&["ab", "cd", "e"])).await, too_large);
        assert_eq!(within(4, chunks(&["abcde"])).await, too_large);
        assert_eq!(read(Body::from("abcde"), 4, SECOND).await, too_large);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up_at_the_deadline() {
        let mut stalling = chunks(&["ab"]);
        stalling.stalls = true;
        assert_eq!(within(9, stalling).await, Err(BodyError::TooSlow));
    }

    #[tokio::test]
    async fn a_body_cut_short_is_broken() {
        let mut cut = chunks(&["ab"]);
        cut.left.push_back(Err(io::ErrorKind::UnexpectedEof.into()));
        assert_eq!(within(9, cut).await, Err(BodyError::Broken));
    }
}
