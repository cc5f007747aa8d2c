//! The connections of one listener: their limits, and which one is evicted for a new connection.
//!
//! Invariant: a request in progress is never cut off by an eviction. Evictable are connections without a request
//! (nothing sent yet, half a head, or idle after a response) and, if there is none, one that has been sending a body
//! for longer than [`BODY_GRACE`]. The client with the most connections loses one first: the one that has been idle
//! longest. One atomic step decides between a request and an eviction, so either the request runs to its end or its
//! handler never starts. A connection that became a WebSocket is never evicted; `socket_slot` limits their number.

mod socket_slot;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

pub(super) use self::socket_slot::{NoSocketSlot, SocketSlot};

/// For this long a body may be in transit from a well-behaved client, so it counts as a running request.
const BODY_GRACE: Duration = Duration::from_secs(5);
/// A full table evicts this fraction of its connections at once, so that a flood of new ones does not search it each
/// time.
const EVICTED_SHARE: usize = 256;

const WAITING: u8 = 0;
const RECEIVING: u8 = 1;
const BUSY: u8 = 2;
const ANSWERED: u8 = 3;
const EVICTED: u8 = 4;
/// A WebSocket.
const UPGRADED: u8 = 5;

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) max: usize,
    pub(super) per_client_max: usize,
    /// WebSocket connections among them.
    pub(super) sockets_max: usize,
}

/// Clones share one table.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<ConnectionsShared>);

#[derive(Debug)]
struct ConnectionsShared {
    limits: ConnectionLimits,
    began: Instant,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    total: usize,
    /// WebSocket connections among them.
    sockets: usize,
    clients: HashMap<IpAddr, Vec<Arc<Activity>>>,
}

/// Why a new connection gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// Every connection is busy with a request.
    Full,
    /// The client has reached its limit, and each of its connections is busy with a request.
    ClientFull,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let limits = ConnectionLimits {
            max: limits.max.max(1),
            per_client_max: limits.per_client_max.max(1),
            ..limits
        };
        Self(Arc::new(ConnectionsShared {
            limits,
            began: Instant::now(),
            table: Mutex::default(),
        }))
    }

    /// Takes a slot for a connection of `client`, if necessary by an eviction. `shared` marks an address that stands
    /// for many clients, such as a proxy, which has no limit of its own.
    pub(super) fn take(&self, client: IpAddr, shared: bool) -> Result<ConnectionSlot, NoSlot> {
        let ConnectionLimits {
            max,
            per_client_max,
            ..
        } = self.0.limits;
        let now_us = self.0.now_us();
        let mut table = self.0.lock();
        let own = table.clients.get(&client).map_or(0, Vec::len);
        if !shared && own >= per_client_max {
            let wanted = wanted(per_client_max);
            if table.evict_of(client, now_us, wanted) == 0 {
                return Err(NoSlot::ClientFull);
            }
        }
        if table.total >= max && table.evict(now_us, wanted(max)) == 0 {
            return Err(NoSlot::Full);
        }
        let activity = Arc::new(Activity {
            state: AtomicU8::new(WAITING),
            since_us: AtomicU64::new(now_us),
            has_begun: AtomicBool::new(false),
            client,
            shared,
            task: OnceLock::new(),
            table: Arc::clone(&self.0),
        });
        table.total += 1;
        let of_client = table.clients.entry(client).or_default();
        of_client.push(Arc::clone(&activity));
        Ok(ConnectionSlot(activity))
    }

    /// The number of open connections, WebSocket connections included.
    pub(super) fn count(&self) -> usize {
        self.0.lock().total
    }

    /// Evicts one idle connection; false if there is none. For the case that the system runs out of a resource before
    /// the table is full.
    pub(super) fn make_room(&self) -> bool {
        self.0.lock().evict(self.0.now_us(), 1) > 0
    }
}

fn wanted(max: usize) -> usize {
    (max / EVICTED_SHARE).max(1)
}

/// The key of a client. An IPv6 client usually controls a whole /64.
pub(super) fn client(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

impl ConnectionsShared {
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl ConnectionTable {
    /// Evicts up to `wanted` connections of the clients with the most connections; returns their number.
    fn evict(&mut self, now_us: u64, wanted: usize) -> usize {
        let most = self.clients.iter().max_by_key(|(_, own)| own.len());
        let evicted = match most.map(|(client, _)| *client) {
            Some(client) => self.evict_of(client, now_us, wanted),
            None => 0,
        };
        if evicted > 0 {
            return evicted;
        }
        // All connections of that client are busy. This is rare, so every client is searched.
        let mut clients: Vec<(usize, IpAddr)> = self
            .clients
            .iter()
            .map(|(client, own)| (own.len(), *client))
            .collect();
        clients.sort_unstable_by(|one, other| other.cmp(one));
        clients
            .into_iter()
            .map(|(_, client)| self.evict_of(client, now_us, wanted))
            .find(|evicted| *evicted > 0)
            .unwrap_or(0)
    }

    /// Evicts up to `wanted` connections of one client, the longest idle first; returns their number.
    fn evict_of(&mut self, client: IpAddr, now_us: u64, wanted: usize) -> usize {
        let Some(own) = self.clients.get_mut(&client) else {
            return 0;
        };
        let mut waiting: Vec<(bool, u64, usize)> = own
            .iter()
            .enumerate()
            .filter_map(|(nth, activity)| {
                let (receiving, since_us) = activity.evictable(now_us)?;
                Some((receiving, since_us, nth))
            })
            .collect();
        waiting.sort_unstable();
        // Slow senders are evicted only if no connection is idle, and one at a time.
        let silent = waiting.iter().filter(|(receiving, ..)| !receiving).count();
        waiting.truncate(wanted.min(silent.max(1)));
        let mut places: Vec<usize> = waiting
            .into_iter()
            .filter(|(.., nth)| own[*nth].evict())
            .map(|(.., nth)| nth)
            .collect();
        // From the end, so that the remaining indexes stay valid.
        places.sort_unstable_by(|one, other| other.cmp(one));
        for nth in &places {
            own.remove(*nth);
        }
        if own.is_empty() {
            self.clients.remove(&client);
        }
        self.total -= places.len();
        places.len()
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: AtomicU8,
    /// Since when it is idle, or receives.
    since_us: AtomicU64,
    has_begun: AtomicBool,
    client: IpAddr,
    /// The address stands for many clients.
    shared: bool,
    task: OnceLock<AbortHandle>,
    table: Arc<ConnectionsShared>,
}

impl Activity {
    /// The head of a request has arrived, with or without a body. False if the connection is being evicted: then the
    /// request must not be executed.
    pub(super) fn begin(&self, has_body: bool) -> bool {
        if has_body {
            // Ordering: published by the swap below.
            self.since_us.store(self.table.now_us(), Ordering::Relaxed);
        }
        let next = if has_body { RECEIVING } else { BUSY };
        if self.state.swap(next, Ordering::AcqRel) == EVICTED {
            self.state.store(EVICTED, Ordering::Release);
            return false;
        }
        self.has_begun.store(true, Ordering::Relaxed);
        true
    }

    /// The whole body has arrived.
    pub(super) fn received(&self) {
        let _ = self
            .state
            .compare_exchange(RECEIVING, BUSY, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The handler has returned; the response may still be in transit.
    pub(super) fn answered(&self) {
        self.received();
        let _ = self
            .state
            .compare_exchange(BUSY, ANSWERED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The response to a request that took a [`SocketSlot`] was not 101, so the connection stays an HTTP connection.
    pub(super) fn stayed_http(&self) {
        let _ =
            self.state
                .compare_exchange(UPGRADED, ANSWERED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether it is a WebSocket, or about to become one.
    pub(super) fn is_upgraded(&self) -> bool {
        self.state.load(Ordering::Relaxed) == UPGRADED
    }

    /// The connection reads. After a response this means that it waits for the next request.
    pub(super) fn reads(&self) {
        if self.state.load(Ordering::Relaxed) == ANSWERED {
            self.since_us.store(self.table.now_us(), Ordering::Relaxed);
            let _ =
                self.state
                    .compare_exchange(ANSWERED, WAITING, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether the head of a request has ever arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether it sends a body, and since when it is idle or sends; `None` if it is busy.
    fn evictable(&self, now_us: u64) -> Option<(bool, u64)> {
        let state = self.state.load(Ordering::Acquire);
        let since_us = self.since_us.load(Ordering::Relaxed);
        let slow = || u128::from(now_us.saturating_sub(since_us)) >= BODY_GRACE.as_micros();
        match state {
            // A connection without a handle was accepted a moment ago and cannot be aborted yet.
            WAITING if self.task.get().is_some() => Some((false, since_us)),
            RECEIVING if slow() => Some((true, since_us)),
            _ => None,
        }
    }

    fn evict(&self) -> bool {
        let from = |state| {
            self.state
                .compare_exchange(state, EVICTED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let evicted = from(WAITING) || from(RECEIVING);
        if evicted && let Some(task) = self.task.get() {
            task.abort();
        }
        evicted
    }
}

/// The slot of one connection, free again when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot(Arc<Activity>);

impl ConnectionSlot {
    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.0)
    }
}

impl Activity {
    /// Sets the task to abort on eviction. Until it is set, the connection cannot be evicted.
    pub(super) fn driven_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let activity = &self.0;
        let mut table = activity.table.lock();
        let Some(own) = table.clients.get_mut(&activity.client) else {
            return;
        };
        // An evicted connection has been removed already.
        let Some(nth) = own.iter().position(|other| Arc::ptr_eq(other, activity)) else {
            return;
        };
        own.remove(nth);
        if own.is_empty() {
            table.clients.remove(&activity.client);
        }
        table.total -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn connections(max: usize, per_client_max: usize) -> Connections {
        Connections::new(ConnectionLimits {
            max,
            per_client_max,
            sockets_max: max,
        })
    }

    /// A slot whose connection can be evicted, and its task.
    fn taken(
        connections: &Connections,
        client: IpAddr,
    ) -> (ConnectionSlot, tokio::task::JoinHandle<()>) {
        let slot = connections.take(client, false).unwrap();
        let task = tokio::spawn(std::future::pending());
        slot.activity().driven_by(task.abort_handle());
        // Times are in microseconds.
        std::thread::sleep(Duration::from_millis(2));
        (slot, task)
    }

    async fn is_closed(task: tokio::task::JoinHandle<()>) -> bool {
        tokio::task::yield_now().await;
        task.is_finished()
    }

    #[tokio::test]
    async fn s4_the_longest_idle_connection_of_the_client_with_most_makes_room() {
        let connections = connections(4, 3);
        let (_first, first) = taken(&connections, ip(1));
        let (_second, second) = taken(&connections, ip(2));
        let (_third, third) = taken(&connections, ip(2));
        let (busy, fourth) = taken(&connections, ip(2));
        assert!(busy.activity().begin(false));
        let (_fifth, fifth) = taken(&connections, ip(3));
        assert!(!is_closed(first).await && !is_closed(third).await);
        assert!(is_closed(second).await && !is_closed(fourth).await);
        assert!(!is_closed(fifth).await);
        assert_eq!(connections.0.lock().total, 4);
    }

    #[tokio::test]
    async fn s4_a_client_at_its_share_closes_its_own_and_no_busy_one() {
        let connections = connections(10, 2);
        let (_other, other) = taken(&connections, ip(9));
        let (first, one) = taken(&connections, ip(1));
        let (second, two) = taken(&connections, ip(1));
        assert!(first.activity().begin(false));
        let third = connections.take(ip(1), false).unwrap();
        assert!(is_closed(two).await && !is_closed(one).await && !is_closed(other).await);
        assert!(!second.activity().begin(false), "it must not start");

        assert!(third.activity().begin(true), "a body that began just now");
        assert_eq!(
            connections.take(ip(1), false).unwrap_err(),
            NoSlot::ClientFull
        );
        assert!(
            connections.take(ip(1), true).is_ok(),
            "a proxy has no share"
        );
        drop(third);
        assert!(connections.take(ip(1), false).is_ok());
    }

    #[tokio::test]
    async fn s4_an_answered_connection_waits_again_once_it_reads() {
        let connections = connections(1, 1);
        let (slot, task) = taken(&connections, ip(1));
        let activity = slot.activity();
        assert!(!activity.has_begun() && activity.begin(true));
        activity.received();
        activity.reads();
        assert!(activity.has_begun());
        assert_eq!(connections.take(ip(2), false).unwrap_err(), NoSlot::Full);
        activity.answered();
        assert_eq!(connections.take(ip(2), false).unwrap_err(), NoSlot::Full);
        activity.reads();
        let next = connections.take(ip(2), false).unwrap();
        assert!(is_closed(task).await);
        drop((slot, next));
        assert!(connections.0.lock().clients.is_empty());
        assert_eq!(connections.0.lock().total, 0);
    }

    #[test]
    fn a_network_of_one_client_is_one_client() {
        let of = |ip: &str| client(ip.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        // On a listener of both families.
        assert_ne!(of("::ffff:192.0.2.1"), of("::ffff:192.0.2.2"));
    }
}
