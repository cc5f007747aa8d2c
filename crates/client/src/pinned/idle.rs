//! Idle connections of a [`PinnedClient`](super::PinnedClient).
//!
//! Invariant: a connection is stored under its server and its socket address, and returned only for both. Number and age
//! are limited.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::PinnedTarget;
use crate::Address;
use crate::connection::HttpConnection;

/// The oldest connection is closed when there are more.
const CONNECTIONS_MAX: usize = 64;

/// Many servers close a connection after five idle seconds. A request that crosses this close is lost, so the client stops
/// using the connection earlier.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The end of the previous response makes a connection ready, except that its driver may need a moment to see it.
const READY_WAIT: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct IdleConnections {
    /// The newest is last.
    kept: Mutex<VecDeque<IdleConnection>>,
}

struct IdleConnection {
    server: Address,
    socket: SocketAddr,
    since: Instant,
    connection: HttpConnection,
}

impl IdleConnections {
    /// The newest connection that serves this target and can take a request.
    pub(super) async fn take(&self, target: &PinnedTarget) -> Option<(SocketAddr, HttpConnection)> {
        let mut found = self.remove(target)?;
        let is_ready = found.connection.is_ready_within(READY_WAIT).await;
        is_ready.then_some((found.socket, found.connection))
    }

    pub(super) fn put(&self, server: &Address, socket: SocketAddr, connection: HttpConnection) {
        if connection.is_closed() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == CONNECTIONS_MAX {
            kept.pop_front();
        }
        kept.push_back(IdleConnection {
            server: server.clone(),
            socket,
            since: Instant::now(),
            connection,
        });
    }

    fn remove(&self, target: &PinnedTarget) -> Option<IdleConnection> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|idle| idle.since.elapsed() < IDLE_MAX && !idle.connection.is_closed());
        let at = kept.iter().rposition(|idle| {
            idle.server == target.server && target.sockets.contains(&idle.socket)
        })?;
        kept.remove(at)
    }
}
