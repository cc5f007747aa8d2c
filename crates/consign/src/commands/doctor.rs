//! `consign doctor`: what needs attention in the data directory, on the machine and in the server, and what repairs it.

mod files;
mod ledger_file;

use std::fmt::Write as _;

use clap::Args;
use consign_automation::config::{SealCheck, Severity};
use consign_automation::program;
use serde::Serialize;
use serde_json::Value;

use crate::cli::single_thread;
use crate::commands::OutputArgs;
use crate::commands::automation::config::tree::TreeArgs;
use crate::commands::status;
use crate::data_dir::DataDir;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::serve::host::DiskSpace;
use crate::{ductile, lock, out, render};

const AFTER_HELP: &str = "\
Checks the data directory (owner, modes, keys, ledger, disk space), asks the server that runs
there for its problems, and checks the configuration of an automation that --config names.
A check of every row needs a stopped server: consign store check.

Exit codes:
  0  nothing needs attention, or --fix repaired all of it
  1  something needs attention";

/// Beyond this, signatures of clients are refused.
const CLOCK_DIFFERENCE_S_MAX: f64 = 60.0;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServerDoctorArgs {
    /// Repair what is safe to repair: the modes of files and directories
    #[arg(long)]
    fix: bool,

    /// The configuration of an automation: its file, or the directory of config.yaml
    #[arg(long, value_name = "PATH")]
    config: Option<std::path::PathBuf>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

/// Something that needs attention.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorFinding {
    level: String,
    id: String,
    what: String,
    why: String,
    next: String,
    /// This command repaired it.
    fixed: bool,
}

impl DoctorFinding {
    fn new(level: &str, id: &str, what: String, why: &str, next: String) -> Self {
        Self {
            level: level.to_owned(),
            id: id.to_owned(),
            what,
            why: why.to_owned(),
            next,
            fixed: false,
        }
    }

    fn error(id: &str, what: String, why: &str, next: String) -> Self {
        Self::new("error", id, what, why, next)
    }

    fn warning(id: &str, what: String, why: &str, next: String) -> Self {
        Self::new("warning", id, what, why, next)
    }

    fn of_server(problem: &Value) -> Self {
        let part = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
        Self {
            level: part("level"),
            id: part("id"),
            what: part("what"),
            why: part("why"),
            next: part("next"),
            fixed: false,
        }
    }
}

/// The report of the command.
#[derive(Debug, Serialize)]
struct DoctorReport {
    healthy: bool,
    /// The names of the checks that were made.
    checked: Vec<&'static str>,
    findings: Vec<DoctorFinding>,
}

impl ServerDoctorArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut checked = Vec::new();
        let mut findings = Vec::new();
        if !self.admin.names_server() {
            let data = self.admin.data().directory();
            self.local(&data, &mut checked, &mut findings);
        }
        checked.push("server");
        findings.extend(single_thread()?.block_on(self.server()));
        if let Some(path) = &self.config {
            checked.push("automation");
            findings.extend(automation(&TreeArgs::at(path)));
        }
        let healthy = findings.iter().all(|finding| finding.fixed);
        let report = DoctorReport {
            healthy,
            checked,
            findings,
        };
        if self.output.json {
            out::json(&report)?;
        } else {
            out::data(&text(&report))?;
        }
        Ok(if healthy { Exit::Done } else { Exit::Failed })
    }

    /// The checks that need no server. Modes come first, because commands refuse a directory that others can write to.
    fn local(
        &self,
        data: &DataDir,
        checked: &mut Vec<&'static str>,
        findings: &mut Vec<DoctorFinding>,
    ) {
        checked.extend(["modes", "ledger", "disk"]);
        findings.extend(files::modes(data, self.fix));
        findings.extend(ledger_file::check(data));
        let root = data.root();
        let disk = DiskSpace::of(root).and_then(|disk| disk.problem(root));
        findings.extend(disk.map(|problem| {
            DoctorFinding::new(
                problem.level.name(),
                problem.id,
                problem.what,
                &problem.why,
                problem.next,
            )
        }));
    }

    /// What the server itself reports; that it cannot be asked is a finding as well.
    async fn server(&self) -> Vec<DoctorFinding> {
        let asked = async {
            let client = self.admin.client()?;
            status::fetch(&client).await
        };
        let status = match asked.await {
            Ok(status) => status,
            Err(error) => return vec![self.unreachable(&error)],
        };
        let problems = status["problems"].as_array().into_iter().flatten();
        let mut findings: Vec<DoctorFinding> = problems.map(DoctorFinding::of_server).collect();
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let here = here.unwrap_or_default().as_secs_f64();
        let difference = here - status["at"].as_f64().unwrap_or(here);
        if difference.abs() > CLOCK_DIFFERENCE_S_MAX {
            findings.push(DoctorFinding::warning(
                "clock",
                format!("this machine's clock and the server's differ by {difference:.0} s"),
                "signed requests are refused when the clocks differ by five minutes",
                "set the clocks, such as with: timedatectl set-ntp true".to_owned(),
            ));
        }
        findings
    }

    fn unreachable(&self, error: &anyhow::Error) -> DoctorFinding {
        let data = self.admin.data().directory();
        let (level, next) = match lock::holder(&data.lock_file()) {
            _ if self.admin.names_server() => {
                ("error", "check the address, and the admin token".to_owned())
            }
            Some(pid) => (
                "error",
                format!("process {pid} holds the data directory: look at its log"),
            ),
            None => (
                "warning",
                format!(
                    "start it with: consign serve --data {}",
                    data.root().display()
                ),
            ),
        };
        let why = "no server could be asked for its problems";
        DoctorFinding::new(level, "server", format!("{error:#}"), why, next)
    }
}

/// The configuration of an automation and its seal.
fn automation(tree: &TreeArgs) -> Vec<DoctorFinding> {
    let next = "see all problems with: consign automation config check; after changes on purpose: consign automation config lock";
    let found = match tree.find() {
        Ok(found) => found,
        Err(error) => {
            let why = "the automation cannot be checked";
            let what = format!("{error:#}");
            return vec![DoctorFinding::error(
                "automation_config",
                what,
                why,
                next.to_owned(),
            )];
        }
    };
    let loaded = program::load(&found.path, &found.environment, SealCheck::AsConfigured);
    let problems = loaded.problems.iter();
    problems
        .filter_map(|problem| {
            let (level, why) = match problem.severity {
                Severity::Error => ("error", "an automation does not start or reload with it"),
                Severity::Warning => ("warning", "an automation starts, and works with it"),
                Severity::Notice => return None,
            };
            let what = ductile::typed(&problem.to_string());
            Some(DoctorFinding::new(
                level,
                "automation_config",
                what,
                why,
                next.to_owned(),
            ))
        })
        .collect()
}

fn text(report: &DoctorReport) -> String {
    let mut text = format!("checked: {}\n", report.checked.join(", "));
    for finding in &report.findings {
        let level = if finding.fixed {
            "fixed"
        } else {
            &finding.level
        };
        let lines = [&finding.what, &finding.why, &finding.next];
        let lines = lines.map(|line| render::block(&ductile::typed(line), 9));
        let _ = writeln!(text, "\n{level:8} {}", lines[0]);
        let _ = writeln!(text, "         {}", lines[1]);
        if !finding.fixed {
            let _ = writeln!(text, "         {}", lines[2]);
        }
    }
    if report.findings.is_empty() {
        text.push_str("nothing needs attention\n");
    }
    text
}
