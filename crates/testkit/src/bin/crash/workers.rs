//! Workers in a separate process, so that they can be suspended and continued.
//!
//! The program starts itself again with `client` as its first argument. These workers are slow, so that a suspend
//! probably hits them between claim and settlement.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use consign_testkit::campaign::client_pool::SLOW;
use consign_testkit::campaign::clients::{Client, SharedClaims};
use consign_testkit::campaign::endpoints::Endpoints;
use consign_testkit::history;
use consign_testkit::process::{Http, Server, signal};
use consign_testkit::seeded_random::SeededRandom;

use crate::trial::CrashTrial;

/// They notice a dead server at once; this is a safety limit.
const END_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Workers(Child);

impl Workers {
    /// The clients in this process.
    pub(crate) const INDEXES: Range<usize> = SLOW;

    pub(crate) fn start(trial: &CrashTrial<'_>, round: u64, server: &Server) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("client").arg(&trial.state.folder);
        command.arg(trial.campaign.base.shim.state_file());
        command.args([
            round.to_string(),
            trial.state.random.clone().draw().to_string(),
        ]);
        command.args([server.authority(), &server.secret("bus_secret")?]);
        command.spawn().map(Self)
    }

    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        signal(self.0.id(), name)
    }

    pub(crate) fn wait(mut self) -> io::Result<()> {
        let deadline = std::time::Instant::now() + END_LIMIT;
        while std::time::Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                let failed = || io::Error::other(format!("the workers ended with {status}"));
                return status.success().then_some(()).ok_or_else(failed);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("the workers did not notice a dead server"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // It usually has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process itself: works until the server is gone.
pub(crate) fn run(words: &[String]) -> io::Result<()> {
    let [folder, state_file, round, seed, authority, key] = words else {
        return Err(io::Error::other("client: six words are needed"));
    };
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let (round, random) = (number(round)?, SeededRandom::new(number(seed)?));
    history::follow(&PathBuf::from(state_file))?;
    let shared: Arc<SharedClaims> = Arc::default();
    let mut threads = Vec::new();
    for index in Workers::INDEXES {
        let http = Http::new(authority).header("X-API-KEY", key);
        let client = Client::new(
            index,
            round,
            &PathBuf::from(folder),
            Endpoints::one(http),
            &random,
        )?
        .slow();
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || client.work(&shared)));
    }
    for thread in threads {
        thread
            .join()
            .map_err(|_| io::Error::other("a worker panicked"))??;
    }
    Ok(())
}
