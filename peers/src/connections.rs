//! How many connections a client really opens: libraries pool and share them as they like, so they are counted from
//! outside, in the kernel's table, while the round runs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Rarely enough to cost nothing, often enough to see each round some times.
const LOOK: Duration = Duration::from_millis(250);
const ESTABLISHED: &str = "01";

/// How the connections of a subject are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// They lead to this port.
    To(u16),
    /// One for each client, and so many more.
    ClientsAnd(usize),
    /// It runs in this process.
    None,
}

/// Counts until it is asked.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    looking: JoinHandle<usize>,
}

impl Watch {
    pub(crate) fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen_over = Arc::clone(&is_over);
        let looking = thread::spawn(move || {
            let mut most = 0;
            while !seen_over.load(Ordering::Relaxed) {
                let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
                most = most.max(count(&table, port));
                thread::park_timeout(LOOK);
            }
            most
        });
        Self { is_over, looking }
    }

    /// The most that were open at once; `None` where none was seen.
    pub(crate) fn most(self) -> Option<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        self.looking.thread().unpark();
        self.looking.join().ok().filter(|most| *most > 0)
    }
}

/// Both ends are on this machine and in this table; only the client's has the port as the remote one.
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
        let watch = Watch::start(address.port());
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        watch.looking.thread().unpark();
        thread::sleep(LOOK * 2);
        assert_eq!(watch.most(), Some(clients.len()));
    }
}
