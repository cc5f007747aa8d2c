//! The order of measuring: every subject once, then every subject again, so that all see the same minutes.
//!
//! Invariant: a subject that was asked for ends up in the report, measured or with the reason why not.

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use crate::connections::{Connections, Watch};
use crate::error::Error;
use crate::load::{Done, Load, Work};
use crate::machine::{self, Clocks, Shares};
use crate::options::Options;
use crate::subject::{Entry, Subject, Yard};

/// Baselines are steady and do not depend on clients, so they need less time.
const BASELINE_SECONDS_MAX: u64 = 1;

/// One round of one subject.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) done: Done,
    pub(crate) shares: Shares,
    /// How busy the machine still was when the round began.
    pub(crate) busy_before: f64,
    /// The most that were open at once; `None` for what runs in this process.
    pub(crate) connections: Option<usize>,
}

/// What a subject is, for the reader of its figures.
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

/// Everything a run found out.
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
    yard: &mut Yard,
    tell: impl Fn(&str),
) -> Findings {
    let mut findings = Findings {
        seconds: options.seconds,
        rounds: options.rounds,
        subjects: Vec::new(),
        series: Vec::new(),
        failures: Vec::new(),
    };
    let mut started = start(options, entries, yard, &mut findings, &tell);
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
            let held = match options.lock.as_deref().map(hold).transpose() {
                Ok(held) => held,
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
                        tell(&format!("{what}: {:.0}/s", sample.done.per_second()));
                        for problem in &sample.done.problems {
                            findings.fail(&what, problem);
                        }
                        Some(sample)
                    }
                    Err(error) => {
                        tell(&format!("{what}: {error}"));
                        findings.fail(&what, &error.to_string());
                        None
                    }
                };
                findings.series[first + index].samples.push(sample);
            }
            drop(held);
        }
    }
    findings
}

/// Starts what was asked for; what does not start becomes a failure.
fn start(
    options: &Options,
    entries: &[&'static Entry],
    yard: &mut Yard,
    findings: &mut Findings,
    tell: impl Fn(&str),
) -> Vec<Started> {
    let mut started = Vec::new();
    for &entry in entries {
        let missing = options.missing.iter();
        let reason = missing.clone().find(|(name, _)| entry.is_called(name));
        if let Some((_, reason)) = reason {
            findings.fail(entry.name, reason);
            continue;
        }
        tell(&format!("starting {}", entry.name));
        match (entry.start)(yard) {
            Ok(subject) => {
                // Figures of an unknown version are no figures of anything.
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
    subject.renew()?;
    let busy_before = machine::wait_until_quiet()?;
    let connections = subject.connections();
    let watch = match connections {
        Connections::To(port) => Some(Watch::start(port)),
        Connections::ClientsAnd(_) | Connections::None => None,
    };
    let before = Clocks::read(subject.server())?;
    let done = subject.round(load);
    let counted = watch.and_then(Watch::most);
    let done = done?;
    let after = Clocks::read(subject.server())?;
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

/// Freed when the file is dropped.
pub(crate) fn hold(path: &Path) -> Result<File, Error> {
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
