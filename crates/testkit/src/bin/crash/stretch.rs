//! A stretch: one data directory, one fault, some rounds of start, work, fault, and check.
//!
//! Invariant: whatever the fault, a round ends with a dead server and a restart, and what its clients were told is
//! held against what the restarted server knows. At the end everything is held against it once more.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use consign_testkit::chance::Chance;
use consign_testkit::disk::Disk;
use consign_testkit::history::{Act, Entry, Heard, History};
use consign_testkit::process::{Options, Server, cleaned, run};
use consign_testkit::shim::Shim;

use crate::clients::{AUTHORS, CLIENTS, Client, LONG_LEASE_S, Shared, history_file};
use crate::fault::{Fault, Point};
use crate::findings::{Findings, Promise};
use crate::space::Space;
use crate::workers::Workers;
use crate::{leases, verify};

/// Checking the store takes its lock, so it is done between two servers, now and then.
const CHECK_EVERY_ROUNDS: u64 = 10;
const CHECK_LIMIT: Duration = Duration::from_mins(1);
/// Longer than any back-off that a few attempts lead to.
const BACKOFFS_OVER_S: i64 = 3_600;
/// Once-keys of one round that are published again.
const REPEATS_MAX: usize = 64;

/// What the stretches of a campaign share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) consign: PathBuf,
    pub(crate) plant: Option<String>,
    pub(crate) shim: Shim,
}

impl Ground {
    /// A server over this data directory, with the shim under it.
    pub(crate) fn options(&self, data: &Path) -> Options {
        let mut options = Options::new(&self.consign, data);
        if let Some(plant) = &self.plant {
            options = options.env("CONSIGN_PLANT", plant);
        }
        self.shim.under(options, "consign.db")
    }
}

#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) fault: Fault,
    pub(crate) folder: PathBuf,
    pub(crate) options: Options,
    pub(crate) chance: Chance,
    pub(crate) findings: &'a mut Findings,
    pub(crate) space: Space,
    pub(crate) workers: Option<Workers>,
    shared: Arc<Shared>,
    entries: Vec<Entry>,
    /// The disk as it was when the running server started, if its power is to be cut.
    disk: Option<Disk>,
    pub(crate) rounds: u64,
    pub(crate) kills: u64,
    /// Changes that did not reach the disk whole.
    pub(crate) lost_writes: u64,
}

impl<'a> Stretch<'a> {
    pub(crate) fn prepare(
        ground: &'a Ground,
        fault: Fault,
        seed: u64,
        folder: &Path,
        findings: &'a mut Findings,
    ) -> io::Result<Self> {
        let data = folder.join("data");
        DirBuilder::new().mode(0o700).create(&data)?;
        let space = if fault == Fault::Full {
            Space::limited(&data)
        } else {
            Space::Unlimited
        };
        let mut options = ground.options(&data);
        if fault.loses_power() {
            options = ground.shim.logging(options, &log_file(folder));
        }
        Ok(Self {
            ground,
            fault,
            folder: folder.to_owned(),
            options,
            chance: Chance::new(seed),
            findings,
            space,
            workers: None,
            shared: Arc::default(),
            entries: Vec::new(),
            disk: None,
            rounds: 0,
            kills: 0,
            lost_writes: 0,
        })
    }

    /// Runs until a promise is broken or all is checked.
    pub(crate) fn run(&mut self, rounds: u64) -> io::Result<()> {
        let mut server = self.start(None)?;
        for round in 1..=rounds {
            if self.fault == Fault::Failpoint
                && let Some(point) = Point::of_round(round).in_server()
            {
                server.kill9()?;
                server = self.start(Some(point))?;
            }
            let threads = self.send_clients(round, &server)?;
            self.disturb(round, &mut server)?;
            self.kills += 1;
            self.gather(threads)?;
            self.lose_power()?;
            if round % CHECK_EVERY_ROUNDS == 0 || round == rounds {
                self.check_store()?;
            }
            server = self.start(None)?;
            self.check_round(round, &server)?;
            self.rounds = round;
            if !self.findings.is_clean() {
                return Ok(());
            }
        }
        self.drain(rounds + 1, &server)?;
        self.check_all(&server)
    }

    /// Starts the server, to end itself at this point if one is given.
    fn start(&mut self, point: Option<&str>) -> io::Result<Server> {
        if self.fault.loses_power() {
            File::create(log_file(&self.folder))?;
            self.disk = Some(Disk::read(&self.options.data)?);
        }
        let mut options = self.options.clone();
        if let Some(point) = point {
            let nth = 1 + self.chance.below(200);
            options = options.env("CONSIGN_FAILPOINT", &format!("{point}:{nth}"));
        }
        Server::start(&options)
    }

    fn send_clients(&mut self, round: u64, server: &Server) -> io::Result<Threads> {
        let elsewhere = if self.fault == Fault::Stop && !round.is_multiple_of(2) {
            self.workers = Some(Workers::start(self, round, server)?);
            Workers::INDEXES
        } else {
            0..0
        };
        let mut threads = Vec::new();
        for index in (0..CLIENTS).filter(|index| !elsewhere.contains(index)) {
            let client = self.client(index, round, server)?;
            let shared = Arc::clone(&self.shared);
            threads.push(thread::spawn(move || client.work(&shared)));
        }
        Ok(Threads { round, threads })
    }

    /// Waits for the clients, who notice that the server is gone, and reads what they wrote.
    fn gather(&mut self, threads: Threads) -> io::Result<()> {
        for thread in threads.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a client panicked"))??;
        }
        if let Some(workers) = self.workers.take() {
            workers.wait()?;
        }
        for client in 0..CLIENTS {
            self.collect(client, threads.round)?;
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

    /// Puts the data directory into the state in which a disk would be that lost its power.
    fn lose_power(&mut self) -> io::Result<()> {
        let Some(mut disk) = self.disk.take() else {
            return Ok(());
        };
        disk.replay(&fs::read(log_file(&self.folder))?, &mut self.chance);
        let loss = disk.cut_power(&mut self.chance);
        self.lost_writes += loss.dropped + loss.torn;
        disk.write(&self.options.data)
    }

    /// What must hold at once after a restart, for the acts of the round that ended with the fault.
    fn check_round(&mut self, round: u64, server: &Server) -> io::Result<()> {
        let mut repeat = self.client(CLIENTS, round, server)?;
        for key in keys_to_repeat(&self.entries, round) {
            // The answer is judged from the history, like everybody else's.
            repeat
                .publish(&key)
                .map_err(|_| io::Error::other("the restarted server does not answer"))?;
        }
        self.collect(CLIENTS, round)?;
        let recent: Vec<Entry> = self.of_round(round).cloned().collect();
        leases::judge(&recent, self.findings);
        if self.fault.hurts_the_disk() {
            let troubles = recent.iter().any(|entry| entry.heard.is_trouble());
            self.findings.check(Promise::TroubleAnswered, troubles, || {
                format!("round {round}: nobody heard of the trouble of the disk")
            });
        } else {
            verify::no_trouble(&recent, self.findings);
        }
        verify::acknowledged(&recent, &mut server.main_client()?, self.findings)
    }

    /// Lets the leases of vanished workers end, and takes what they left.
    fn drain(&mut self, round: u64, server: &Server) -> io::Result<()> {
        let gone = |_| io::Error::other("the server stopped answering");
        // First the leases run out, and then the pauses that follow. Idle connections end meanwhile.
        for seconds in [LONG_LEASE_S + 1, BACKOFFS_OVER_S] {
            self.ground.shim.let_pass(seconds)?;
            let mut anybody = self.client(CLIENTS, round, server)?;
            anybody.claim("nothing-has-this-goal").map_err(gone)?;
        }
        let mut undertaker = self.client(CLIENTS, round, server)?;
        for (_, key) in leases::left_behind(&self.entries) {
            // Nothing to claim means that it was taken by somebody; the timelines will tell.
            if let Some(hold) = undertaker.claim(key).map_err(gone)? {
                undertaker.fulfil(&hold, &self.shared).map_err(gone)?;
            }
        }
        self.collect(CLIENTS, round)
    }

    fn check_all(&mut self, server: &Server) -> io::Result<()> {
        let mut http = server.main_client()?;
        leases::judge(&self.entries, self.findings);
        verify::acknowledged(&self.entries, &mut http, self.findings)?;
        verify::once_keys(&self.entries, &mut http, self.findings)?;
        verify::timelines(&self.entries, &mut http, self.findings)
    }

    fn check_store(&mut self) -> io::Result<()> {
        let mut command = cleaned(&self.ground.consign);
        command.args(["store", "check", "--json", "--data"]);
        command.arg(&self.options.data);
        let output = run(command, CHECK_LIMIT)?;
        self.findings
            .check(Promise::StoreSound, output.status.success(), || {
                let said = [output.stdout.as_slice(), &output.stderr].concat();
                String::from_utf8_lossy(&said).into_owned()
            });
        Ok(())
    }

    fn client(&self, index: usize, round: u64, server: &Server) -> io::Result<Client> {
        let http = server.main_client()?;
        Client::new(index, round, &self.folder, http, &self.chance)
    }

    pub(crate) fn of_round(&self, round: u64) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.round == round)
    }

    /// Everything that clients asked for.
    pub(crate) fn operations(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Makes sure that what is needed to understand a finding stays.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.space.keep(&self.folder.join("data-of-the-full-disk"))
    }
}

/// The clients of a round at work.
#[derive(Debug)]
struct Threads {
    round: u64,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Where the shim writes down what happens to the data directory.
fn log_file(folder: &Path) -> PathBuf {
    folder.join("changes.log")
}

/// Keys whose answer leaves open what became of them, and a few of those that were answered.
fn keys_to_repeat(entries: &[Entry], round: u64) -> Vec<String> {
    let of_round = entries.iter().filter(|entry| entry.round == round);
    let mut answered = 0_u32;
    let repeated = of_round.filter_map(|entry| match (&entry.act, &entry.heard) {
        (Act::Publish { key }, heard) if heard.is_unknown() => Some(key.clone()),
        (Act::Publish { key }, Heard::Yes { .. }) => {
            answered += 1;
            (answered % 16 == 1).then(|| key.clone())
        }
        _ => None,
    });
    repeated.take(REPEATS_MAX).collect()
}
