//! The servers that a client uses: one server, or several nodes of one ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::clients::ClientStop;
use crate::history::ClientOutcome;
use crate::process::Http;

/// The pause after an error response.
const TROUBLE_PAUSE: Duration = Duration::from_millis(5);
/// The pause before the next node, because recovery may take a while.
const NODE_PAUSE: Duration = Duration::from_millis(25);

/// The endpoints of a client and its current one.
#[derive(Debug)]
pub struct Endpoints {
    servers: Vec<Http>,
    at: usize,
    /// Set when the clients must end; without it they end with their server.
    end: Option<Arc<AtomicBool>>,
}

impl Endpoints {
    /// One server. A client without a response takes it for dead and ends.
    pub fn one(http: Http) -> Self {
        Self {
            servers: vec![http],
            at: 0,
            end: None,
        }
    }

    /// Nodes of one ledger. After an error a client moves to the next one, until `end` is set.
    pub fn nodes(servers: Vec<Http>, first: usize, end: Arc<AtomicBool>) -> Self {
        let at = first % servers.len().max(1);
        Self {
            servers,
            at,
            end: Some(end),
        }
    }

    pub(super) fn http(&mut self) -> &mut Http {
        &mut self.servers[self.at]
    }

    /// Whether the client was stopped.
    pub(super) fn is_over(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.load(Ordering::Relaxed))
    }

    /// Moves to the next endpoint after a connection has ended. False if the client ends as well.
    pub(super) fn move_on(&mut self) -> bool {
        if self.end.is_none() || self.is_over() {
            return false;
        }
        self.at = (self.at + 1) % self.servers.len();
        thread::sleep(NODE_PAUSE);
        true
    }

    /// Whether a connection that says nothing may be given up for another node.
    pub(super) const fn has_others(&self) -> bool {
        self.end.is_some()
    }

    /// Waits or moves to the next endpoint, depending on the outcome.
    pub(super) fn after(&mut self, outcome: &ClientOutcome) -> Result<(), ClientStop> {
        if !outcome.is_unknown() {
            return Ok(());
        }
        if self.end.is_none() {
            if *outcome == ClientOutcome::Lost {
                return Err(ClientStop::Over);
            }
            thread::sleep(TROUBLE_PAUSE);
            return Ok(());
        }
        if self.is_over() {
            return Err(ClientStop::Over);
        }
        self.at = (self.at + 1) % self.servers.len();
        thread::sleep(NODE_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_ends_with_its_only_server_and_moves_on_among_nodes() {
        let http = || Http::new("127.0.0.1:1");
        let trouble = ClientOutcome::Refused { status: 503 };
        let mut one = Endpoints::one(http());
        assert!(one.after(&trouble).is_ok());
        assert!(one.after(&ClientOutcome::Lost).is_err());
        let end: Arc<AtomicBool> = Arc::default();
        let mut nodes = Endpoints::nodes(vec![http(), http(), http()], 4, Arc::clone(&end));
        assert_eq!(nodes.at, 1);
        assert!(nodes.after(&ClientOutcome::Refused { status: 404 }).is_ok());
        assert_eq!(nodes.at, 1);
        assert!(nodes.after(&trouble).is_ok());
        assert!(nodes.after(&ClientOutcome::Lost).is_ok());
        assert_eq!(nodes.at, 0);
        end.store(true, Ordering::Relaxed);
        assert!(nodes.is_over() && nodes.after(&ClientOutcome::Lost).is_err());
    }
}
