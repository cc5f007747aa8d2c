//! The budget of WebSocket connections among the connections of a listener.
//!
//! Invariant: a WebSocket occupies its [`ConnectionSlot`](super::ConnectionSlot) and one of these slots until its
//! stream is dropped, and no eviction closes it. So their number is limited apart from that of the connections: a flood
//! of sockets cannot take the slots that requests need. A client cannot take all of its own connections either.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Activity, BUSY, UPGRADED};

/// The connections of a client that its sockets leave for requests.
const REQUEST_CONNECTIONS_MIN: usize = 8;

/// Why a request cannot become a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSocketSlot {
    /// The listener has reached its limit of sockets.
    Full,
    /// The client has reached its limit of sockets.
    ClientFull,
    /// The body of the request has not been read.
    Receiving,
}

/// The slot of one WebSocket, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct SocketSlot(Arc<Activity>);

impl Activity {
    /// Turns the connection of the running request into a WebSocket. If the slot is dropped before the response, it is
    /// an HTTP connection again.
    pub(crate) fn upgrade(self: &Arc<Self>) -> Result<SocketSlot, NoSocketSlot> {
        let limits = self.table.limits;
        let mut table = self.table.lock();
        if table.sockets >= limits.sockets_max {
            return Err(NoSocketSlot::Full);
        }
        let own = table.clients.get(&self.client).map_or(0, |own| {
            own.iter().filter(|other| other.is_upgraded()).count()
        });
        if !self.shared && own >= sockets_per_client_max(limits.per_client_max) {
            return Err(NoSocketSlot::ClientFull);
        }
        self.state
            .compare_exchange(BUSY, UPGRADED, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_state| NoSocketSlot::Receiving)?;
        table.sockets += 1;
        Ok(SocketSlot(Arc::clone(self)))
    }
}

fn sockets_per_client_max(connections: usize) -> usize {
    connections
        .saturating_sub(REQUEST_CONNECTIONS_MIN)
        .max(connections / 2)
        .max(1)
}

impl Drop for SocketSlot {
    fn drop(&mut self) {
        self.0.table.lock().sockets -= 1;
        let _ = self
            .0
            .state
            .compare_exchange(UPGRADED, BUSY, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::{ConnectionLimits, ConnectionSlot, Connections, NoSlot};
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn connections(max: usize, per_client_max: usize, sockets_max: usize) -> Connections {
        Connections::new(ConnectionLimits {
            max,
            per_client_max,
            sockets_max,
        })
    }

    /// A connection with a running request.
    fn busy(connections: &Connections, client: IpAddr) -> ConnectionSlot {
        let slot = connections.take(client, false).unwrap();
        slot.activity()
            .driven_by(tokio::spawn(async {}).abort_handle());
        assert!(slot.activity().begin(false));
        slot
    }

    #[tokio::test]
    async fn a_socket_is_counted_and_never_evicted() {
        let connections = connections(2, 2, 2);
        let first = busy(&connections, ip(1));
        let second = busy(&connections, ip(2));
        let slots = [&first, &second].map(|slot| slot.activity().upgrade().unwrap());
        for slot in [&first, &second] {
            slot.activity().answered();
            slot.activity().reads();
            assert!(slot.activity().is_upgraded());
        }
        assert_eq!(connections.take(ip(3), false).unwrap_err(), NoSlot::Full);
        assert!(!connections.make_room());
        drop((slots, first));
        assert!(connections.take(ip(3), false).is_ok());
        assert_eq!(connections.0.lock().sockets, 0);
    }

    #[tokio::test]
    async fn sockets_leave_connections_for_requests() {
        let connections = connections(8, 4, 3);
        let mut held = Vec::new();
        for (last, expected) in [
            (1, None),
            (1, None),
            (1, Some(NoSocketSlot::ClientFull)),
            (2, None),
            (3, Some(NoSocketSlot::Full)),
        ] {
            let slot = busy(&connections, ip(last));
            let socket = slot.activity().upgrade();
            assert_eq!(socket.as_ref().err().copied(), expected);
            held.push((slot, socket));
        }
        drop(held.remove(0));
        assert!(busy(&connections, ip(3)).activity().upgrade().is_ok());
        assert_eq!(sockets_per_client_max(1024), 1016);
        assert_eq!(sockets_per_client_max(1), 1);
    }

    #[tokio::test]
    async fn a_request_that_is_refused_after_all_leaves_an_http_connection() {
        let connections = connections(1, 1, 1);
        let slot = busy(&connections, ip(1));
        drop(slot.activity().upgrade().unwrap());
        slot.activity().answered();
        slot.activity().reads();
        assert!(slot.activity().begin(false), "the next request");

        // The response replaced the 101 while the slot was still held.
        let socket = slot.activity().upgrade().unwrap();
        slot.activity().answered();
        slot.activity().stayed_http();
        slot.activity().reads();
        drop(socket);
        assert!(connections.make_room(), "it is idle");

        let receiving = connections.take(ip(2), false).unwrap();
        assert!(receiving.activity().begin(true));
        let refused = receiving.activity().upgrade();
        assert_eq!(refused.unwrap_err(), NoSocketSlot::Receiving);
    }
}
