//! The order of the rounds: every subject once, then every subject again, so that all are measured in the same minutes.
//!
//! Invariant: every selected subject is in the report, measured or with the reason why not.

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use crate::connections::{ConnectionCounter, Connections};
use crate::error::Error;
use crate::load::{Load, RoundResult, Work};
use crate::machine::{self, CpuShares, CpuTimes};
use crate::options::Options;
use crate::subject::{Entry, Environment, Subject};

/// Baselines are steady and do not depend on clients, so they need less time.
const BASELINE_SECONDS_MAX: u64 = 1;

/// One round of one subject.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) done: RoundResult,
    pub(crate) shares: CpuShares,
    /// How busy the machine still was when the round began.
    pub(crate) busy_before: f64,
    /// The most that were open at once; `None` for a subject that runs in this process.
    pub(crate) connections: Option<usize>,
}

/// The description of a subject in the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Description {
    pub(crate) subject: &'static str,
    pub(crate) version: String,
    pub(crate) settings: String,
    pub(crate) caveat: Option<&'static str>,
}

/// All rounds of one subject with one number of clients.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) subject: &'static str,
    pub(crate) clients: usize,
    pub(crate) work: Work,
    pub(crate) is_baseline: bool,
    /// In the order of rounds; `None` where it failed.
    pub(crate) samples: Vec<Option<Sample>>,
}

/// Why a subject has no figures, or why they cannot be trusted.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    pub(crate) subject: String,
    pub(crate) reason: String,
}

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) seconds: u64,
    pub(crate) rounds: u64,
    pub(crate) subjects: Vec<Description>,
    pub(crate) series: Vec<Series>,
    pub(crate) failures: Vec<Failure>,
}

struct Started {
    entry: &'static Entry,
    subject: Box<dyn Subject>,
}

pub(crate) fn run(
    options: &Options,
    entries: &[&'static Entry],
    environment: &mut Environment,
    progress: impl Fn(&str),
) -> Findings {
    let mut findings = Findings {
        seconds: options.seconds,
        rounds: options.rounds,
        subjects: Vec::new(),
        series: Vec::new(),
        failures: Vec::new(),
    };
    let mut started = start(options, entries, environment, &mut findings, &progress);
    let mut serial = 0;
    for &clients in &options.clients {
        let first = findings.series.len();
        let work = options.work.with(clients);
        findings.series.extend(started.iter().map(|started| Series {
            subject: started.entry.name,
            clients,
            work,
            is_baseline: started.entry.is_baseline,
            samples: Vec::new(),
        }));
        for round in 1..=options.rounds {
            let lock = match options.lock.as_deref().map(lock_file).transpose() {
                Ok(lock) => lock,
                Err(error) => {
                    findings.fail("the lock", &error.to_string());
                    return findings;
                }
            };
            for (index, started) in started.iter_mut().enumerate() {
                serial += 1;
                let load = Load {
                    work,
                    clients,
                    seconds: seconds(options, started.entry),
                    serial,
                };
                let what = format!(
                    "{} with {clients} clients, round {round}",
                    started.entry.name
                );
                let sample = match sample(started.subject.as_mut(), &load) {
                    Ok(sample) => {
                        progress(&format!("{what}: {:.0}/s", sample.done.per_second()));
                        for problem in &sample.done.problems {
                            findings.fail(&what, problem);
                        }
                        Some(sample)
                    }
                    Err(error) => {
                        progress(&format!("{what}: {error}"));
                        findings.fail(&what, &error.to_string());
                        None
                    }
                };
                findings.series[first + index].samples.push(sample);
            }
            drop(lock);
        }
    }
    findings
}

/// Starts the selected subjects; one that does not start becomes a failure.
fn start(
    options: &Options,
    entries: &[&'static Entry],
    environment: &mut Environment,
    findings: &mut Findings,
    progress: impl Fn(&str),
) -> Vec<Started> {
    let mut started = Vec::new();
    for &entry in entries {
        let missing = options.missing.iter();
        let reason = missing.clone().find(|(name, _)| entry.has_name(name));
        if let Some((_, reason)) = reason {
            findings.fail(entry.name, reason);
            continue;
        }
        progress(&format!("starting {}", entry.name));
        match (entry.start)(environment) {
            Ok(subject) => {
                // Figures of an unknown version are worthless.
                let version = subject.version().unwrap_or_else(|error| {
                    findings.fail(entry.name, &format!("its version is unknown: {error}"));
                    "of unknown version".to_owned()
                });
                findings.subjects.push(Description {
                    subject: entry.name,
                    version,
                    settings: subject.settings(),
                    caveat: subject.caveat(),
                });
                started.push(Started { entry, subject });
            }
            Err(error) => findings.fail(entry.name, &error.to_string()),
        }
    }
    started
}

fn seconds(options: &Options, entry: &Entry) -> u64 {
    if entry.is_baseline {
        options.seconds.min(BASELINE_SECONDS_MAX)
    } else {
        options.seconds
    }
}

fn sample(subject: &mut dyn Subject, load: &Load) -> Result<Sample, Error> {
    subject.reset()?;
    let busy_before = machine::wait_until_quiet()?;
    let connections = subject.connections();
    let counter = match connections {
        Connections::To(port) => Some(ConnectionCounter::start(port)),
        Connections::ClientsAnd(_) | Connections::None => None,
    };
    let before = CpuTimes::read(subject.server())?;
    let done = subject.round(load);
    let counted = counter.and_then(ConnectionCounter::maximum);
    let done = done?;
    let after = CpuTimes::read(subject.server())?;
    let mut shares = before.until(&after);
    shares.busy = done.busy.unwrap_or(shares.busy);
    Ok(Sample {
        done,
        shares,
        busy_before,
        connections: match connections {
            Connections::To(_) => counted,
            Connections::ClientsAnd(more) => Some(load.clients + more),
            Connections::None => None,
        },
    })
}

/// Unlocked when the file is dropped.
pub(crate) fn lock_file(path: &Path) -> Result<File, Error> {
    let shown = path.display().to_string();
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::io(&*shown))?;
    file.lock().map_err(Error::io(shown))?;
    Ok(file)
}

impl Findings {
    fn fail(&mut self, subject: &str, reason: &str) {
        self.failures.push(Failure {
            subject: subject.to_owned(),
            reason: reason.to_owned(),
        });
    }
}
