//! Counts the open connections of a client during a round, in the table of the operating system, because libraries pool
//! and share connections.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Rare enough to cost little, and several times in each round.
const POLL: Duration = Duration::from_millis(250);
const ESTABLISHED: &str = "01";

/// How the connections of a subject are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Those to this port.
    To(u16),
    /// One for each client, and this number more.
    ClientsAnd(usize),
    /// It runs in this process.
    None,
}

/// A thread that counts until [`ConnectionCounter::maximum`] stops it.
pub(crate) struct ConnectionCounter {
    is_stopped: Arc<AtomicBool>,
    counting: JoinHandle<usize>,
}

impl ConnectionCounter {
    pub(crate) fn start(port: u16) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let counting = thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
                most = most.max(count(&table, port));
                thread::park_timeout(POLL);
            }
            most
        });
        Self {
            is_stopped,
            counting,
        }
    }

    /// The highest count; `None` if no connection was seen.
    pub(crate) fn maximum(self) -> Option<usize> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.counting.thread().unpark();
        self.counting.join().ok().filter(|most| *most > 0)
    }
}

/// The table has both ends of each connection; only the client's end has the port as its remote one.
fn count(table: &str, port: u16) -> usize {
    let wanted = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    let ours = lines.filter(|line| {
        let mut fields = line.split_whitespace().skip(2);
        let leads_there = fields
            .next()
            .is_some_and(|remote| remote.ends_with(&wanted));
        leads_there && fields.next() == Some(ESTABLISHED)
    });
    ours.count()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn one_end_of_each_open_connection_is_counted() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 0100007F:1F90 00000000:0000 0A 0:0\n\
                     1: 0100007F:C001 0100007F:1F90 01 0:0\n\
                     2: 0100007F:1F90 0100007F:C001 01 0:0\n\
                     3: 0100007F:C002 0100007F:1F90 06 0:0\n";
        assert_eq!(count(table, 8080), 1);
        assert_eq!(count(table, 80), 0);
    }

    #[test]
    fn connections_of_this_machine_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counter = ConnectionCounter::start(address.port());
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        counter.counting.thread().unpark();
        thread::sleep(POLL * 2);
        assert_eq!(counter.maximum(), Some(clients.len()));
    }
}
