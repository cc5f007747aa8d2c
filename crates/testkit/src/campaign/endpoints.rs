//! The servers that a client can turn to: one, with which it ends, or several nodes over the same ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::clients::ClientStop;
use crate::history::ClientOutcome;
use crate::process::Http;

/// Between an answer of trouble and the next try.
const TROUBLE_PAUSE: Duration = Duration::from_millis(5);
/// Among nodes it may take a while until one of them can work again.
const NODE_PAUSE: Duration = Duration::from_millis(25);

/// Where a client is and where else it could go.
#[derive(Debug)]
pub struct Endpoints {
    servers: Vec<Http>,
    at: usize,
    /// Set when the clients are to end; without it they end with their server.
    end: Option<Arc<AtomicBool>>,
}

impl Endpoints {
    /// One server. A client whose answer does not come takes it for dead, and ends.
    pub fn one(http: Http) -> Self {
        Self {
            servers: vec![http],
            at: 0,
            end: None,
        }
    }

    /// Nodes that know the same. A client that finds one in trouble goes to the next, until `end` is set.
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

    /// Whether somebody said that it is enough.
    pub(super) fn is_over(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.load(Ordering::Relaxed))
    }

    /// Waits and moves on as what was heard demands.
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
