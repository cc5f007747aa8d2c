//! The course of a stretch: its clients, its choices, its disk, and how far it has come.
//!
//! Invariant: a stretch that did not end well leaves what is needed to understand that in its folder.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::crowd::Crowd;
use super::findings::Findings;
use super::plan::Named;
use super::reach::Reach;
use super::turns::{Ran, Task};
use super::verify;
use crate::chance::Chance;
use crate::history::Entry;
use crate::process::Http;
use crate::space::Space;

/// What the stretches of all campaigns have.
#[derive(Debug)]
pub struct Course<'a, F> {
    pub fault: F,
    pub folder: PathBuf,
    pub chance: Chance,
    pub findings: &'a mut Findings,
    pub crowd: Crowd,
    pub space: Space,
    pub rounds: u64,
    pub kills: u64,
}

/// A stretch of some kind of campaign, made ready.
pub trait Stretch<'a>: Sized {
    type Fault: Named;

    fn course(&self) -> &Course<'a, Self::Fault>;

    /// Runs until a promise is broken or all is checked.
    fn run(&mut self, rounds: u64) -> io::Result<()>;

    /// What this kind counts beside rounds, kills and operations.
    fn also(&self) -> Option<(&'static str, u64)>;

    /// For the report: how the fault was made.
    fn about(&self) -> String;

    fn carry_out(mut self, rounds: u64) -> io::Result<Ran> {
        let done = self.run(rounds);
        let course = self.course();
        if done.is_err() || !course.findings.is_clean() {
            let disk = course.folder.join("data-of-the-full-disk");
            course.space.keep(&disk)?;
        }
        done?;
        Ok(Ran {
            rounds: course.rounds,
            kills: course.kills,
            operations: course.crowd.operations(),
            also: self.also(),
            about: self.about(),
        })
    }
}

impl<'a, F: Named> Course<'a, F> {
    pub fn new(task: &Task<'_, F>, findings: &'a mut Findings, space: Space, crowd: Crowd) -> Self {
        Self {
            fault: task.fault,
            folder: task.folder.to_owned(),
            chance: Chance::new(task.seed),
            findings,
            crowd,
            space,
            rounds: 0,
            kills: 0,
        }
    }

    /// What must hold at once after any fault, for the acts of its round. Gives these acts, for what else must.
    pub fn check_round(
        &mut self,
        round: u64,
        reach: Reach,
        http: &mut Http,
    ) -> io::Result<Vec<Entry>> {
        self.crowd.repeat(round, reach)?;
        let recent = self.crowd.of_round(round);
        self.crowd.judge(&recent, self.findings);
        verify::acknowledged(&recent, http, self.findings)?;
        Ok(recent)
    }

    pub fn pause(&mut self, range_ms: Range<u64>) {
        let pause_ms = range_ms.start + self.chance.below(range_ms.end - range_ms.start);
        thread::sleep(Duration::from_millis(pause_ms));
    }
}
