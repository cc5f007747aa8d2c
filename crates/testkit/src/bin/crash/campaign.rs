//! The rounds: start, check what survived, let the clients work, kill.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::history::{Act, Entry, Heard, History, now_us};
use consign_testkit::process::{Options, Server, cleaned, run};
use tempfile::TempDir;

use crate::chance::Chance;
use crate::clients::{AUTHORS, CLIENTS, Client, SECOND_US, SHORT_LEASE_S, Shared, history_file};
use crate::findings::{Findings, Promise};
use crate::{leases, syncs, verify};

const KILL_AFTER_MS: std::ops::Range<u64> = 200..900;
/// Checking the store takes its lock, so it is done between two servers, now and then.
const CHECK_EVERY_ROUNDS: u64 = 10;
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) consign: PathBuf,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
    pub(crate) plant: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Campaign {
    plan: Plan,
    folder: PathBuf,
    options: Options,
    chance: Chance,
    shared: Arc<Shared>,
    kills: u64,
    pub(crate) findings: Findings,
}

impl Campaign {
    pub(crate) fn prepare(plan: Plan) -> io::Result<(Self, TempDir)> {
        let folder = tempfile::tempdir()?;
        let mut options = Options::new(&plan.consign, folder.path().join("data"));
        if let Some(plant) = &plan.plant {
            options = options.env("CONSIGN_PLANT", plant);
        }
        let campaign = Self {
            chance: Chance::new(plan.seed),
            folder: folder.path().to_owned(),
            options,
            shared: Arc::default(),
            kills: 0,
            findings: Findings::default(),
            plan,
        };
        Ok((campaign, folder))
    }

    pub(crate) fn seed(&self) -> u64 {
        self.plan.seed
    }

    /// Runs until a promise is broken or all is checked.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut server = Server::start(&self.options)?;
        for round in 1..=self.plan.rounds {
            self.let_work(round, &mut server)?;
            if round % CHECK_EVERY_ROUNDS == 0 || round == self.plan.rounds {
                self.check_store()?;
            }
            server = Server::start(&self.options)?;
            self.check_round(round, &server)?;
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        self.drain(&server)?;
        self.check_all(&server)?;
        if self.findings.is_clean() {
            syncs::judge(&self.options, &self.folder, &mut self.findings)?;
        }
        self.findings.completed();
        Ok(())
    }

    /// Lets all clients work and kills the server in the middle of it.
    fn let_work(&mut self, round: u64, server: &mut Server) -> io::Result<()> {
        let mut workers = Vec::new();
        for index in 0..CLIENTS {
            let client = self.client(index, round, server)?;
            let shared = Arc::clone(&self.shared);
            workers.push(thread::spawn(move || client.work(&shared)));
        }
        let span = KILL_AFTER_MS.end - KILL_AFTER_MS.start;
        let after_ms = KILL_AFTER_MS.start + self.chance.below(span);
        thread::sleep(Duration::from_millis(after_ms));
        server.kill9()?;
        self.kills += 1;
        for worker in workers {
            worker
                .join()
                .map_err(|_| io::Error::other("a client panicked"))??;
        }
        Ok(())
    }

    /// What must hold at once after a restart, for the acts of the round that ended with the kill.
    fn check_round(&mut self, round: u64, server: &Server) -> io::Result<()> {
        let mut http = server.main_client()?;
        let mut repeat = self.client(CLIENTS, round, server)?;
        let entries = self.entries()?;
        for key in keys_to_repeat(&entries, round) {
            // The answer is judged from the history, like everybody else's.
            repeat
                .publish(&key)
                .map_err(|_| io::Error::other("the restarted server does not answer"))?;
        }
        let recent: Vec<Entry> = self
            .entries()?
            .into_iter()
            .filter(|entry| entry.round == round)
            .collect();
        leases::judge(&recent, &mut self.findings);
        verify::acknowledged(&recent, &mut http, &mut self.findings)
    }

    /// Takes what vanished workers left, once their leases are over.
    fn drain(&mut self, server: &Server) -> io::Result<()> {
        let entries = self.entries()?;
        let mut missing = leases::left_behind(&entries);
        let over_us = missing.values().max().copied().unwrap_or(0);
        let over_us = over_us + SHORT_LEASE_S * SECOND_US + SECOND_US / 5;
        let wait_us = u64::try_from(over_us - now_us()).unwrap_or(0);
        thread::sleep(Duration::from_micros(wait_us));
        let mut undertaker = self.client(CLIENTS, self.plan.rounds + 1, server)?;
        let gone = |_| io::Error::other("the server stopped answering");
        let deadline = Instant::now() + DRAIN_LIMIT;
        while !missing.is_empty() && Instant::now() < deadline {
            // Nothing to claim means that the rest was taken by somebody; the timelines will tell.
            let Some(hold) = undertaker.claim().map_err(gone)? else {
                break;
            };
            missing.remove(hold.id.as_str());
            undertaker.fulfil(&hold, &self.shared).map_err(gone)?;
        }
        Ok(())
    }

    fn check_all(&mut self, server: &Server) -> io::Result<()> {
        let mut http = server.main_client()?;
        let entries = self.entries()?;
        let mut findings = std::mem::take(&mut self.findings);
        leases::judge(&entries, &mut findings);
        verify::acknowledged(&entries, &mut http, &mut findings)?;
        verify::once_keys(&entries, &mut http, &mut findings)?;
        verify::timelines(&entries, &mut http, &mut findings)?;
        self.findings = findings;
        Ok(())
    }

    fn check_store(&mut self) -> io::Result<()> {
        let mut command = cleaned(&self.plan.consign);
        command.args(["store", "check", "--json", "--data"]);
        command.arg(&self.options.data);
        let output = run(command, Duration::from_secs(30))?;
        self.findings
            .check(Promise::StoreSound, output.status.success(), || {
                let said = [output.stdout.as_slice(), &output.stderr].concat();
                String::from_utf8_lossy(&said).into_owned()
            });
        Ok(())
    }

    fn client(&self, index: usize, round: u64, server: &Server) -> io::Result<Client> {
        Client::new(
            index,
            round,
            &self.folder,
            server.main_client()?,
            &self.chance,
        )
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for client in 0..AUTHORS {
            let path = history_file(&self.folder, client);
            if path.exists() {
                entries.extend(History::read(&path, client)?);
            }
        }
        Ok(entries)
    }

    pub(crate) fn summary(&self) -> String {
        let entries = self.entries().unwrap_or_default();
        let said_yes = |wanted: fn(&Act) -> bool| {
            let yes = entries
                .iter()
                .filter(|entry| wanted(&entry.act) && matches!(entry.heard, Heard::Yes { .. }));
            yes.count()
        };
        let lost = entries.iter().filter(|entry| entry.heard == Heard::Lost);
        format!(
            "{} kills, {} publishes, {} claims, {} fulfils and {} fails acknowledged, {} answers lost",
            self.kills,
            said_yes(|act| matches!(act, Act::Publish { .. })),
            said_yes(|act| matches!(act, Act::Claim)),
            said_yes(|act| matches!(act, Act::Fulfil { .. })),
            said_yes(|act| matches!(act, Act::Fail { .. })),
            lost.count(),
        )
    }
}

/// Keys whose answer was lost, and a few of those that were answered.
fn keys_to_repeat(entries: &[Entry], round: u64) -> Vec<String> {
    let of_round = entries.iter().filter(|entry| entry.round == round);
    let mut answered = 0_u32;
    let repeated = of_round.filter_map(|entry| match (&entry.act, &entry.heard) {
        (Act::Publish { key }, Heard::Lost) => Some(key.clone()),
        (Act::Publish { key }, Heard::Yes { .. }) => {
            answered += 1;
            (answered % 16 == 1).then(|| key.clone())
        }
        _ => None,
    });
    repeated.collect()
}
