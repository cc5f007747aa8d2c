//! Clients of Beam in a campaign: senders of signed intents, recipients on sockets, and the message bus.
//!
//! Invariant: what a client sends and what it gets is in its history file; checks use the files only. A recipient gives
//! every delivery another result, so a nonce that was answered twice shows two results.

mod bus_clients;
mod directory_checks;
mod history;
mod message_checks;
mod recipient;
mod senders;
mod setup;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::beam_agents::TestAgent;
use crate::campaign::findings::{Findings, Promise};
use crate::process::{Http, Options};
use crate::seeded_random::SeededRandom;

use directory_checks::DirectoryChecks;
use history::{BeamEntry, BeamHistory};
use message_checks::MessageChecks;
use recipient::{PlannedResult, RecipientClient};

/// Senders of intents; each waits for its result.
const SENDERS: usize = 4;
const RECIPIENTS: usize = 2;
/// Branches of the seed that other clients do not use.
const FIRST_BRANCH: usize = 100;

/// The agents of a trial, their histories, and what recipients carry from one round to the next.
#[derive(Debug)]
pub struct BeamPool {
    agents: Arc<CampaignAgents>,
    folder: PathBuf,
    random: SeededRandom,
    /// Results that a recipient had not sent when its server ended.
    left: [Arc<Mutex<Vec<PlannedResult>>>; RECIPIENTS],
    entries: Vec<BeamEntry>,
    operations: u64,
}

/// The running clients of a round.
#[derive(Debug)]
pub struct RunningBeamClients {
    files: Vec<PathBuf>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct CampaignAgents {
    sender: TestAgent,
    bus_sender: TestAgent,
    recipients: [TestAgent; RECIPIENTS],
}

impl BeamPool {
    pub fn new(folder: &Path, seed: u64) -> Self {
        Self {
            agents: Arc::new(CampaignAgents {
                sender: TestAgent::new("sender", 11),
                bus_sender: TestAgent::new("bus-sender", 12),
                recipients: [TestAgent::new("first", 13), TestAgent::new("second", 14)],
            }),
            folder: folder.to_owned(),
            random: SeededRandom::new(seed ^ 0x6265_616d),
            left: Default::default(),
            entries: Vec::new(),
            operations: 0,
        }
    }

    /// Adds the settings of Beam: no limits of rates, short timeouts, fast retries, and a viewer of traces.
    pub fn configure(&self, options: Options) -> io::Result<Options> {
        setup::configure(options, &self.folder, &self.agents)
    }

    /// Registers the agents and their rules.
    pub fn register(&self, http: &mut Http) -> io::Result<()> {
        setup::register(http, &self.agents)
    }

    /// Starts the clients of a round; they end with their server.
    pub fn send(&self, round: u64, http: impl Fn() -> Http) -> io::Result<RunningBeamClients> {
        let mut running = RunningBeamClients {
            files: Vec::new(),
            threads: Vec::new(),
        };
        for (index, left) in self.left.iter().enumerate() {
            let history = running.history(&self.folder, round, &format!("recipient-{index}"))?;
            let recipient = RecipientClient {
                beam_id: self.agents.recipients[index].beam_id.clone(),
                http: http(),
                history,
                random: self.random.branch(FIRST_BRANCH + index, round),
                left: Arc::clone(left),
                end: Arc::new(AtomicBool::new(false)),
                is_helpful: false,
            };
            running
                .threads
                .push(thread::spawn(move || recipient.work()));
        }
        for index in 0..SENDERS {
            let sender = senders::IntentSender {
                agents: Arc::clone(&self.agents),
                prefix: format!("r{round}-s{index}"),
                http: http(),
                history: running.history(&self.folder, round, &format!("sender-{index}"))?,
                random: self.random.branch(FIRST_BRANCH + 10 + index, round),
            };
            running.threads.push(thread::spawn(move || sender.work()));
        }
        let sender = bus_clients::MessageSender {
            agents: Arc::clone(&self.agents),
            prefix: format!("r{round}-m"),
            http: http(),
            history: running.history(&self.folder, round, "bus-sender")?,
            random: self.random.branch(FIRST_BRANCH + 20, round),
        };
        running.threads.push(thread::spawn(move || sender.work()));
        let acknowledger = bus_clients::MessageAcknowledger {
            agents: Arc::clone(&self.agents),
            round,
            http: http(),
            history: running.history(&self.folder, round, "acknowledger")?,
            random: self.random.branch(FIRST_BRANCH + 21, round),
        };
        running
            .threads
            .push(thread::spawn(move || acknowledger.work()));
        Ok(running)
    }

    /// Waits until the clients end, and reads their histories.
    pub fn gather(&mut self, running: RunningBeamClients) -> io::Result<()> {
        for thread in running.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a client of Beam panicked"))??;
        }
        self.collect(&running.files)
    }

    fn collect(&mut self, files: &[PathBuf]) -> io::Result<()> {
        for file in files {
            let entries = BeamHistory::read(file)?;
            self.operations += entries.len() as u64;
            self.entries.extend(entries);
        }
        Ok(())
    }

    /// While the disk is healthy, the server never blames its ledger.
    pub fn no_trouble(&self, round: u64, findings: &mut Findings) {
        for entry in self.requests_of(round) {
            findings.check(Promise::HealthyAnswers, !entry.is_trouble(), || {
                format!("{entry:?}")
            });
        }
    }

    /// Whether the server blamed its ledger in this round.
    pub fn heard_of_trouble(&self, round: u64) -> bool {
        self.requests_of(round).any(BeamEntry::is_trouble)
    }

    fn requests_of(&self, round: u64) -> impl Iterator<Item = &BeamEntry> {
        let prefix = format!("r{round}-");
        let all = self.entries.iter();
        all.filter(move |entry| entry.key.starts_with(&prefix))
    }

    /// Checks the requests of a round after the restart: repeats them, and reads what the server stored.
    pub fn check_round(
        &mut self,
        round: u64,
        http: &mut Http,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let prefix = format!("r{round}-");
        let nonces: BTreeSet<String> = self
            .entries
            .iter()
            .filter(|entry| entry.key.starts_with(&prefix))
            .map(|entry| entry.key.clone())
            .collect();
        self.check(&nonces, &format!("{round}-checks"), http, findings)
    }

    fn check(
        &mut self,
        nonces: &BTreeSet<String>,
        name: &str,
        http: &mut Http,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let file = history_file(&self.folder, name);
        let mut history = BeamHistory::open(&file)?;
        let checks = DirectoryChecks::new(&self.agents, &self.entries, nonces);
        checks.check_received(http, findings)?;
        checks.repeat(http, &mut history)?;
        let messages = MessageChecks::new(&self.agents, &self.entries, nonces);
        messages.repeat(http, &mut history)?;
        drop(history);
        self.collect(&[file])?;
        DirectoryChecks::new(&self.agents, &self.entries, nonces).check(http, findings)?;
        MessageChecks::new(&self.agents, &self.entries, nonces).check(http, findings)
    }

    /// Lets everything come to its end, with recipients that answer at once; then checks everything once more.
    pub fn check_all(
        &mut self,
        http: impl Fn() -> Http,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let end = Arc::new(AtomicBool::new(false));
        let mut running = RunningBeamClients {
            files: Vec::new(),
            threads: Vec::new(),
        };
        for (index, left) in self.left.iter().enumerate() {
            let history = running.history(&self.folder, 0, &format!("last-recipient-{index}"))?;
            let recipient = RecipientClient {
                beam_id: self.agents.recipients[index].beam_id.clone(),
                http: http(),
                history,
                random: self.random.branch(FIRST_BRANCH + 30 + index, 0),
                left: Arc::clone(left),
                end: Arc::clone(&end),
                is_helpful: true,
            };
            running
                .threads
                .push(thread::spawn(move || recipient.work()));
        }
        let ended = message_checks::await_end(&mut http(), findings);
        end.store(true, std::sync::atomic::Ordering::Relaxed);
        self.gather(running)?;
        ended?;
        let is_nonce = |entry: &&BeamEntry| entry.call.has_nonce();
        let nonces: BTreeSet<String> = self
            .entries
            .iter()
            .filter(is_nonce)
            .map(|entry| entry.key.clone())
            .collect();
        self.check(&nonces, "last-checks", &mut http(), findings)?;
        DirectoryChecks::new(&self.agents, &self.entries, &nonces)
            .check_ends(&mut http(), findings)?;
        for agent in &self.agents.recipients {
            message_checks::check_events(&mut http(), &agent.beam_id, findings)?;
        }
        Ok(())
    }

    /// The number of requests, deliveries and results.
    pub fn operations(&self) -> u64 {
        self.operations
    }
}

impl RunningBeamClients {
    fn history(&mut self, folder: &Path, round: u64, name: &str) -> io::Result<BeamHistory> {
        let file = history_file(folder, &format!("{round}-{name}"));
        let history = BeamHistory::open(&file)?;
        self.files.push(file);
        Ok(history)
    }
}

fn history_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("beam-{name}.jsonl"))
}
