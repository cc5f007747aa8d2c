//! The clients of a trial and their recorded histories.
//!
//! Invariant: checks use the history files of the clients, never their memory.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clients::{AUTHORS, CLIENTS, Client, LONG_LEASE_S, SharedClaims, history_file};
use super::endpoints::Endpoints;
use super::findings::Findings;
use super::{leases, verify};
use crate::history::{ClientAction, ClientOutcome, History, HistoryEntry};
use crate::process::Http;
use crate::seeded_random::SeededRandom;
use crate::shim::Shim;

/// Longer than any back-off after a few attempts.
const BACKOFFS_OVER_S: i64 = 3_600;
/// Once-keys of one round that are published again.
const REPEATS_MAX: usize = 64;

const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// Workers that may be slow.
pub const SLOW: Range<usize> = 4..7;

#[derive(Debug)]
pub struct ClientPool {
    folder: PathBuf,
    random: SeededRandom,
    shared: Arc<SharedClaims>,
    entries: Vec<HistoryEntry>,
    slow: bool,
    apart_us: i64,
}

/// The running clients of a round.
#[derive(Debug)]
pub struct RunningClients {
    round: u64,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl ClientPool {
    pub fn new(folder: &Path, seed: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            random: SeededRandom::new(seed),
            shared: Arc::default(),
            entries: Vec::new(),
            slow: false,
            apart_us: 0,
        }
    }

    /// Most workers are slow, so that a jump of time finds them with a lease.
    #[must_use]
    pub fn slow(mut self, slow: bool) -> Self {
        self.slow = slow;
        self
    }

    /// Leases are measured by clocks that differ by this much, so they may end that much early or late.
    #[must_use]
    pub fn clocks_apart(mut self, apart_us: i64) -> Self {
        self.apart_us = apart_us;
        self.shared = Arc::new(SharedClaims::clocks_apart(apart_us));
        self
    }

    /// Starts these clients, each with its endpoints.
    pub fn send(
        &self,
        round: u64,
        indexes: impl Iterator<Item = usize>,
        endpoints: impl Fn(usize) -> io::Result<Endpoints>,
    ) -> io::Result<RunningClients> {
        let mut threads = Vec::new();
        for index in indexes {
            let mut client = self.client(index, round, endpoints(index)?)?;
            if self.slow && SLOW.contains(&index) {
                client = client.slow();
            }
            let shared = Arc::clone(&self.shared);
            threads.push(thread::spawn(move || client.work(&shared)));
        }
        Ok(RunningClients { round, threads })
    }

    /// Waits until the clients end, and reads their histories.
    pub fn gather(&mut self, running: RunningClients) -> io::Result<()> {
        for thread in running.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a client panicked"))??;
        }
        for client in 0..CLIENTS {
            self.collect(client, running.round)?;
        }
        Ok(())
    }

    fn collect(&mut self, client: usize, round: u64) -> io::Result<()> {
        debug_assert!(client < AUTHORS);
        let path = history_file(&self.folder, client, round);
        if path.exists() {
            self.entries.extend(History::read(&path, client)?);
        }
        Ok(())
    }

    fn client(&self, index: usize, round: u64, endpoints: Endpoints) -> io::Result<Client> {
        Client::new(index, round, &self.folder, endpoints, &self.random)
    }

    /// Publishes the once-keys of a round again: those with an unknown outcome, and some of the others. The responses
    /// are checked like all others.
    pub fn repeat(&mut self, round: u64, endpoints: Endpoints) -> io::Result<()> {
        let mut repeat = self.client(CLIENTS, round, endpoints)?;
        for key in keys_to_repeat(&self.entries, round) {
            repeat
                .publish(&key)
                .map_err(|_| io::Error::other("after the fault nobody answers"))?;
        }
        self.collect(CLIENTS, round)
    }

    /// Lets the leases of vanished workers expire, and claims their intents. A node skips rows that another node has
    /// locked, so with several nodes this takes some tries.
    pub fn drain(
        &mut self,
        round: u64,
        looks: u32,
        shim: &Shim,
        endpoints: impl Fn() -> io::Result<Endpoints>,
    ) -> io::Result<()> {
        let gone = |_| io::Error::other("the server stopped answering");
        // First the leases expire, then the back-offs that follow. Idle connections end meanwhile.
        for seconds in [LONG_LEASE_S + 1, BACKOFFS_OVER_S] {
            shim.let_pass(seconds)?;
            let mut anybody = self.client(CLIENTS, round, endpoints()?)?;
            anybody.claim("nothing-has-this-goal").map_err(gone)?;
        }
        let mut drain_client = self.client(CLIENTS, round, endpoints()?)?;
        let left = leases::left_behind(&self.entries);
        let mut keys: Vec<&str> = left.into_values().collect();
        for look in 0..looks {
            if look > 0 && !keys.is_empty() {
                thread::sleep(LOOK_AGAIN);
            }
            let mut nothing = Vec::new();
            for key in keys {
                match drain_client.claim(key).map_err(gone)? {
                    Some(held_claim) => {
                        drain_client
                            .fulfil(&held_claim, &self.shared)
                            .map_err(gone)?;
                    }
                    None => nothing.push(key),
                }
            }
            // They were claimed by other clients; the timelines show by whom.
            keys = nothing;
        }
        self.collect(CLIENTS, round)
    }

    /// Compares everything that clients received with the state of the server.
    pub fn check_all(&self, http: &mut Http, findings: &mut Findings) -> io::Result<()> {
        self.judge(&self.entries, findings);
        verify::acknowledged(&self.entries, http, findings)?;
        verify::once_keys(&self.entries, http, findings)?;
        verify::timelines(&self.entries, http, findings)
    }

    /// Checks the leases in the histories.
    pub fn judge(&self, entries: &[HistoryEntry], findings: &mut Findings) {
        leases::judge(entries, self.apart_us, findings);
    }

    pub fn of_round(&self, round: u64) -> Vec<HistoryEntry> {
        let of_round = self.entries.iter().filter(|entry| entry.round == round);
        of_round.cloned().collect()
    }

    /// The number of requests of the clients.
    pub fn operations(&self) -> u64 {
        self.entries.len() as u64
    }
}

/// Keys whose outcome is unknown, and a few of those that were acknowledged.
fn keys_to_repeat(entries: &[HistoryEntry], round: u64) -> Vec<String> {
    let of_round = entries.iter().filter(|entry| entry.round == round);
    let mut answered = 0_u32;
    let repeated = of_round.filter_map(|entry| match (&entry.action, &entry.outcome) {
        (ClientAction::Publish { key }, outcome) if outcome.is_unknown() => Some(key.clone()),
        (ClientAction::Publish { key }, ClientOutcome::Yes { .. }) => {
            answered += 1;
            (answered % 16 == 1).then(|| key.clone())
        }
        _ => None,
    });
    repeated.take(REPEATS_MAX).collect()
}
