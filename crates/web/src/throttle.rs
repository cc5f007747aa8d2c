//! Limits the rate of wrong credentials.
//!
//! A face marks the response to a wrong credential with [`FailedCredential`]; this layer, around all faces of a
//! listener, counts them by address (of IPv6 the /64). An address has [`FAILURES_PER_MINUTE`] failures, refilled one
//! by one. When they are used up, a wrong credential gets 429 in the format of the face, and so does a right one that
//! is shorter than [`STRONG_CHARS_MIN`]: otherwise the response would still reveal a right guess. A longer credential
//! cannot be guessed, so it is accepted: a misconfigured worker behind the same address (a NAT, a proxy, one machine)
//! does not lock out clients with generated secrets.
//!
//! Invariant: the table is bounded; when it is full of throttled addresses, further ones share one entry. While there
//! are no failures, a request costs one load. Requests without an address (the control socket, tests of a bare
//! router) are not counted.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Query;
use axum::response::Response;
use http::{HeaderMap, Request, Uri};
use tower::Service;

use super::connections::client;
use super::credentials;
use super::proxy::Origin;
use super::server::Peer;

/// Wrong credentials that one address may send per minute.
pub const FAILURES_PER_MINUTE: u32 = 10;
/// A secret of this length cannot be guessed; generated secrets are longer.
pub const STRONG_CHARS_MIN: usize = 32;
const REFILL: Duration = Duration::from_secs(60 / FAILURES_PER_MINUTE as u64);
const ADDRESSES_MAX: usize = 10_000;
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// The entry of clients that reach this server through a proxy on the same machine without its configuration. They have the
/// address of this machine but not its privileges, and must not lock out programs on it.
const BEHIND_LOCAL_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 254));
/// The shared entry of addresses that do not fit into the table.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Response extension: the credential of the request was wrong. A missing credential is not marked.
#[derive(Clone, Copy, Debug)]
pub struct FailedCredential;

/// Request extension: the address has no failures left. For faces whose credentials this layer cannot see.
#[derive(Clone, Copy, Debug)]
pub struct Throttled;

/// Builds the response to a throttled request, from its path.
#[derive(Clone)]
pub struct TooManyFailures(pub Arc<dyn Fn(&str) -> Response + Send + Sync>);

impl fmt::Debug for TooManyFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TooManyFailures")
    }
}

/// Marks the response to a wrong credential.
pub fn marked(mut response: Response) -> Response {
    response.extensions_mut().insert(FailedCredential);
    response
}

/// Wraps a service so that wrong credentials are counted.
#[derive(Clone, Debug)]
pub struct Throttle<S> {
    inner: S,
    failures: Failures,
    trust_proxy: bool,
    too_many: Option<TooManyFailures>,
}

impl<S> Throttle<S> {
    /// Without `too_many` nothing is counted.
    pub fn new(inner: S, trust_proxy: bool, too_many: Option<TooManyFailures>) -> Self {
        Self {
            inner,
            failures: Failures::default(),
            trust_proxy,
            too_many,
        }
    }
}

impl<S> Service<Request<Body>> for Throttle<S>
where
    S: Service<Request<Body>, Response = Response>,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ThrottleFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>();
        let Some((peer, too_many)) = peer.zip(self.too_many.clone()) else {
            return ThrottleFuture::Unseen(self.inner.call(request));
        };
        let address = counted_address(Origin::of(*peer, request.headers(), self.trust_proxy));
        if self.failures.is_throttled(address) {
            if shows_weak_credential(request.headers(), request.uri()) {
                self.failures.note(address);
                return ThrottleFuture::Refused(Some(too_many.0(request.uri().path())));
            }
            request.extensions_mut().insert(Throttled);
        }
        // Cheap: the path is shared, not copied.
        let uri = request.uri().clone();
        ThrottleFuture::Running {
            answer: self.inner.call(request),
            failures: self.failures.clone(),
            address,
            uri,
            too_many,
        }
    }
}

/// The response future of [`Throttle`].
#[derive(Debug)]
pub enum ThrottleFuture<F> {
    Unseen(F),
    Refused(Option<Response>),
    Running {
        answer: F,
        failures: Failures,
        address: IpAddr,
        uri: Uri,
        too_many: TooManyFailures,
    },
}

impl<F, E> Future for ThrottleFuture<F>
where
    F: Future<Output = Result<Response, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Unseen(answer) => Pin::new(answer).poll(cx),
            Self::Refused(response) => {
                let response = response.take();
                Poll::Ready(Ok(response.expect("a future is not polled after its end")))
            }
            Self::Running {
                answer,
                failures,
                address,
                uri,
                too_many,
            } => {
                let response = ready!(Pin::new(answer).poll(cx))?;
                if response.extensions().get::<FailedCredential>().is_some()
                    && failures.note(*address)
                {
                    return Poll::Ready(Ok(too_many.0(uri.path())));
                }
                Poll::Ready(Ok(response))
            }
        }
    }
}

fn counted_address(origin: Origin) -> IpAddr {
    if origin.client.is_loopback() && !origin.loopback {
        BEHIND_LOCAL_PROXY
    } else {
        client(origin.client)
    }
}

/// Whether the request has a credential that is short enough to be guessed.
fn shows_weak_credential(headers: &HeaderMap, uri: &Uri) -> bool {
    let weak = |length: usize| length < STRONG_CHARS_MIN;
    let in_header = ["x-api-key", "x-admin-token"]
        .into_iter()
        .filter_map(|name| headers.get(name))
        .any(|value| weak(value.len()));
    let password = credentials::basic(headers).map(|basic| basic.password.len());
    let bearer = credentials::bearer(headers).map(str::len);
    // The event stream of automations takes its token there.
    // It is decoded first, since `%61` is one character of a guess.
    let in_query = Query::<Vec<(String, String)>>::try_from_uri(uri).ok();
    let in_query = in_query.and_then(|Query(pairs)| {
        let tokens = pairs.into_iter().filter(|(name, _)| name == "token");
        tokens.map(|(_, token)| token.len()).min()
    });
    in_header || [password, bearer, in_query].into_iter().flatten().any(weak)
}

/// Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Failures(Arc<FailuresShared>);

#[derive(Debug, Default)]
struct FailuresShared {
    /// Whether there are recent failures; most requests read only this flag.
    any: AtomicBool,
    table: Mutex<FailureTable>,
}

#[derive(Debug, Default)]
struct FailureTable {
    /// When each address has all of its failures back.
    full_at: HashMap<IpAddr, Instant>,
    unlogged: u64,
    logged_at: Option<Instant>,
    log_is_planned: bool,
}

impl Failures {
    fn is_throttled(&self, address: IpAddr) -> bool {
        // Ordering: a concurrent failure may be missed.
        self.0.any.load(Ordering::Relaxed) && self.0.lock().is_throttled(address, Instant::now())
    }

    /// Counts a failure; returns true if the address had none left.
    fn note(&self, address: IpAddr) -> bool {
        let now = Instant::now();
        let mut table = self.0.lock();
        let none_left = table.note(address, now);
        self.0.any.store(true, Ordering::Relaxed);
        if none_left && table.may_log(now) {
            table.log(address, now);
        } else if !table.log_is_planned
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            table.log_is_planned = true;
            let failures = self.clone();
            runtime.spawn(async move {
                tokio::time::sleep(LOG_INTERVAL).await;
                failures.log_later(address);
            });
        }
        none_left
    }

    /// Logs the failures since the last line, which would otherwise appear only with the next one.
    fn log_later(&self, address: IpAddr) {
        let now = Instant::now();
        let mut table = self.0.lock();
        table.log_is_planned = false;
        if table.unlogged > 0 && table.may_log(now) {
            table.log(address, now);
        }
        table.full_at.retain(|_, full_at| *full_at > now);
        let any = !table.full_at.is_empty();
        self.0.any.store(any, Ordering::Relaxed);
    }
}

impl FailuresShared {
    fn lock(&self) -> MutexGuard<'_, FailureTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailureTable {
    fn is_throttled(&self, address: IpAddr, now: Instant) -> bool {
        let full_at = self.full_at.get(&self.counted(address));
        full_at.is_some_and(|full_at| *full_at > now + REFILL * (FAILURES_PER_MINUTE - 1))
    }

    /// An unknown address shares an entry if the table is full.
    fn counted(&self, address: IpAddr) -> IpAddr {
        if self.full_at.len() < ADDRESSES_MAX || self.full_at.contains_key(&address) {
            address
        } else {
            OTHERS
        }
    }

    fn note(&mut self, address: IpAddr, now: Instant) -> bool {
        self.unlogged += 1;
        if self.full_at.len() >= ADDRESSES_MAX && !self.full_at.contains_key(&address) {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.is_throttled(address, now) {
            return true;
        }
        let full_at = self.full_at.entry(self.counted(address)).or_insert(now);
        *full_at = (*full_at).max(now) + REFILL;
        false
    }

    fn may_log(&self, now: Instant) -> bool {
        self.logged_at
            .is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL)
    }

    fn log(&mut self, address: IpAddr, now: Instant) {
        let failures = self.unlogged;
        (self.unlogged, self.logged_at) = (0, Some(now));
        tracing::warn!(
            failures,
            last_address = %address,
            "wrong credentials were sent; an address with too many of them gets status 429"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn s14_an_address_has_ten_failures_a_minute_and_others_are_unaffected() {
        let mut table = FailureTable::default();
        let now = Instant::now();
        for _ in 0..FAILURES_PER_MINUTE {
            assert!(!table.is_throttled(ip(1), now));
            assert!(!table.note(ip(1), now));
        }
        assert!(table.is_throttled(ip(1), now) && table.note(ip(1), now));
        assert!(!table.is_throttled(ip(2), now));
        let later = now + REFILL;
        assert!(!table.is_throttled(ip(1), later), "one came back");
        assert!(!table.note(ip(1), later) && table.note(ip(1), later));
        let much_later = now + Duration::from_mins(10);
        for _ in 0..FAILURES_PER_MINUTE {
            assert!(!table.note(ip(1), much_later));
        }
        assert!(table.note(ip(1), much_later), "never more than ten");
    }

    #[test]
    fn s14_the_table_of_addresses_is_bounded() {
        let mut table = FailureTable::default();
        let now = Instant::now();
        for number in 0..ADDRESSES_MAX + 100 {
            let number = u32::try_from(number).unwrap();
            table.note(Ipv4Addr::from_bits(number + 1).into(), now);
        }
        assert!(table.full_at.len() <= ADDRESSES_MAX + 1);
        assert!(table.note(ip(1), now), "the others share what is left");
        table.note(ip(1), now + Duration::from_mins(2));
        assert_eq!(table.full_at.len(), 1, "those of before are forgotten");
    }

    #[test]
    fn s14_clients_of_a_local_proxy_are_counted_apart_from_this_machine() {
        let origin = |client: &str, loopback| Origin {
            client: client.parse().unwrap(),
            https: false,
            loopback,
        };
        let local = counted_address(origin("127.0.0.1", true));
        assert_ne!(local, counted_address(origin("127.0.0.1", false)));
        let far = counted_address(origin("192.0.2.1", false));
        assert_eq!(far, ip(1));
    }

    #[test]
    fn s14_there_is_one_line_a_minute() {
        let mut table = FailureTable::default();
        let now = Instant::now();
        table.note(ip(1), now);
        assert!(table.may_log(now));
        table.log(ip(1), now);
        assert_eq!(table.unlogged, 0);
        assert!(!table.may_log(now + LOG_INTERVAL.saturating_sub(Duration::from_secs(1))));
        assert!(table.may_log(now + LOG_INTERVAL));
    }

    #[test]
    fn s14_a_credential_is_weak_by_its_length_wherever_it_stands() {
        let weak = |name: &'static str, value: &str, uri: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            shows_weak_credential(&headers, &uri.parse().unwrap())
        };
        let (short, long) = ("x".repeat(31), "x".repeat(32));
        for name in ["x-api-key", "x-admin-token"] {
            assert!(weak(name, &short, "/") && !weak(name, &long, "/"));
        }
        let bearer = |token: &str| format!("Bearer {token}");
        assert!(weak("authorization", &bearer(&short), "/"));
        assert!(!weak("authorization", &bearer(&long), "/"));
        assert!(weak("authorization", "Basic YWRtaW46YTpi", "/"));
        assert!(weak("host", "a", "/events?a=1&token=short"));
        let encoded = |token: &str| token.replace('x', "%78");
        assert!(weak(
            "host",
            "a",
            &format!("/events?%74oken={}", encoded(&short))
        ));
        assert!(!weak(
            "host",
            "a",
            &format!("/events?token={}", encoded(&long))
        ));
        assert!(!weak("host", "a", "/events"), "none is no guess");
    }
}
