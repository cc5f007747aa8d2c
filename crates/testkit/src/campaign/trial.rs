//! The state of a trial: its clients, its random choices, its disk, and its progress.
//!
//! Invariant: a failed trial leaves the files for its analysis in its folder.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::client_pool::ClientPool;
use super::endpoints::Endpoints;
use super::findings::Findings;
use super::plan::CampaignFault;
use super::runner::{TrialReport, TrialTask};
use super::verify;
use crate::history::HistoryEntry;
use crate::process::Http;
use crate::seeded_random::SeededRandom;
use crate::space::Space;

/// The state that trials of all campaigns share.
#[derive(Debug)]
pub struct TrialState<'a, F> {
    pub fault: F,
    pub folder: PathBuf,
    pub random: SeededRandom,
    pub findings: &'a mut Findings,
    pub clients: ClientPool,
    pub space: Space,
    pub rounds: u64,
    pub kills: u64,
}

/// A prepared trial.
pub trait Trial<'a>: Sized {
    type Fault: CampaignFault;

    fn state(&self) -> &TrialState<'a, Self::Fault>;

    /// Runs until a violation or the end.
    fn run(&mut self, rounds: u64) -> io::Result<()>;

    /// A further counter beside rounds, kills and operations.
    fn also(&self) -> Option<(&'static str, u64)>;

    /// For the report: how the fault was injected.
    fn about(&self) -> String;

    fn carry_out(mut self, rounds: u64) -> io::Result<TrialReport> {
        let done = self.run(rounds);
        let state = self.state();
        if done.is_err() || !state.findings.is_clean() {
            let disk = state.folder.join("data-of-the-full-disk");
            state.space.keep(&disk)?;
        }
        done?;
        Ok(TrialReport {
            rounds: state.rounds,
            kills: state.kills,
            operations: state.clients.operations(),
            also: self.also(),
            about: self.about(),
        })
    }
}

impl<'a, F: CampaignFault> TrialState<'a, F> {
    pub fn new(
        task: &TrialTask<'_, F>,
        findings: &'a mut Findings,
        space: Space,
        clients: ClientPool,
    ) -> Self {
        Self {
            fault: task.fault,
            folder: task.folder.to_owned(),
            random: SeededRandom::new(task.seed),
            findings,
            clients,
            space,
            rounds: 0,
            kills: 0,
        }
    }

    /// Checks the actions of a round after its fault. Returns these actions for further checks.
    pub fn check_round(
        &mut self,
        round: u64,
        endpoints: Endpoints,
        http: &mut Http,
    ) -> io::Result<Vec<HistoryEntry>> {
        self.clients.repeat(round, endpoints)?;
        let recent = self.clients.of_round(round);
        self.clients.judge(&recent, self.findings);
        verify::acknowledged(&recent, http, self.findings)?;
        Ok(recent)
    }

    pub fn pause(&mut self, range_ms: Range<u64>) {
        let pause_ms = range_ms.start + self.random.below(range_ms.end - range_ms.start);
        thread::sleep(Duration::from_millis(pause_ms));
    }
}
