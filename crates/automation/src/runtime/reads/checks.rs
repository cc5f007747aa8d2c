//! Checks for operators: what needs attention, and whether the ledger is consistent.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use consign_engine::{Error, Operator};

use super::is_over;
use super::jobs::{SCANNED_MAX, every_job};
use crate::breaker;
use crate::pipeline::{SEND_PLUGIN, SWITCH_PLUGIN, StepKind};
use crate::program::{Program, UNSERVED_WEBHOOKS, WEBHOOKS_LISTEN, unserved_webhook};
use crate::runtime::job::{Job, SubmittedBy, WAITING, job_id};
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records::{self, ScheduleStatus};
use crate::runtime::schedules::ScheduleInfo;
use crate::runtime::send;

/// How many faulty rows a check names.
const NAMED_MAX: usize = 5;
/// Rows that are held in memory at once with their payload.
const WHOLE_ROWS: u32 = 20;
/// How many open jobs of a command are searched for those of a schedule.
const IN_FLIGHT_MAX: u32 = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCheck {
    pub name: String,
    pub ok: bool,
    pub detail: Option<String>,
}

impl ServiceCheck {
    pub fn passed(name: &str) -> Self {
        Self::of(name, None)
    }

    /// A check passes if there is no detail to report.
    pub fn of(name: &str, detail: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            ok: detail.is_none(),
            detail,
        }
    }
}

/// A schedule and its open jobs.
#[derive(Clone, Debug)]
pub struct ScheduleInFlight {
    pub schedule: ScheduleInfo,
    pub jobs: Vec<String>,
    /// The command has more open jobs than were read.
    pub is_capped: bool,
}

impl Runtime {
    /// Lists what needs attention: plugins whose setup failed or whose breaker is open, and schedules that cannot run.
    pub async fn doctor(&self) -> Result<Vec<ServiceCheck>, Error> {
        let mut checks = Vec::new();
        for plugin in self.program().plugins() {
            let unhealthy_reason = self.plugin_unhealthy_reason(&plugin.name).await?;
            checks.push(plugin_check(&plugin.name, unhealthy_reason));
        }
        checks.extend(left_out(&self.program()));
        checks.extend(self.stranded_checks().await?);
        checks.extend(self.sender_checks());
        if unserved_webhook(self.program().config()).is_some() {
            let detail = format!("{UNSERVED_WEBHOOKS}; {WEBHOOKS_LISTEN}");
            checks.push(ServiceCheck::of("webhooks", Some(detail)));
        }
        for schedule in self.schedules().await? {
            let detail = match schedule.status {
                ScheduleStatus::PausedInvalid => Some(
                    schedule
                        .reason
                        .unwrap_or_else(|| "it is not valid".to_owned()),
                ),
                ScheduleStatus::Active
                | ScheduleStatus::PausedManual
                | ScheduleStatus::Exhausted => None,
            };
            let name = format!("schedule {} {}", schedule.plugin, schedule.schedule_id);
            checks.push(ServiceCheck::of(&name, detail));
        }
        Ok(checks)
    }

    /// Whether the message bus can sign for each sender of a `core.send` step.
    fn sender_checks(&self) -> Vec<ServiceCheck> {
        let program = self.program();
        let nodes = (program.pipelines().iter()).flat_map(|pipeline| pipeline.graph.nodes());
        let senders: BTreeSet<&str> = nodes
            .filter_map(|node| match &node.kind {
                StepKind::Step(uses) if uses.plugin == SEND_PLUGIN => uses.with.literal("from"),
                StepKind::Step(_) | StepKind::Switch(_) => None,
            })
            .collect();
        let bus = self.inner.bus.as_deref();
        let check = |sender: &str| {
            let detail = match bus {
                None => Some(send::NO_BUS.to_owned()),
                Some(bus) if bus.signs_for(sender) => None,
                Some(_) => Some(send::no_identity(sender)),
            };
            ServiceCheck::of(&format!("sender {sender}"), detail)
        };
        senders.into_iter().map(check).collect()
    }

    /// Why a plugin that can be run does not work.
    pub(super) async fn plugin_unhealthy_reason(
        &self,
        plugin: &str,
    ) -> Result<Option<String>, Error> {
        let setup: Option<records::SetupRecord> = self.stored(records::setup_key(plugin)).await?;
        if let Some(setup) = setup.filter(|setup| !setup.healthy && !setup.pending) {
            let failed = || "its setup failed".to_owned();
            return Ok(Some(setup.error.unwrap_or_else(failed)));
        }
        let is_open = self.breaker_of(plugin).await? == breaker::BreakerState::Open;
        Ok(is_open.then(|| "its breaker is open".to_owned()))
    }

    /// The number of queued jobs per plugin that cannot be run here.
    pub(in crate::runtime) async fn stranded_jobs(&self) -> Result<BTreeMap<String, u64>, Error> {
        let program = self.program();
        let mut stranded = BTreeMap::new();
        for work in self.engine().job_counts().await? {
            let plugin = work.capability.unwrap_or_default();
            let is_ours = plugin == SWITCH_PLUGIN || WAITING.contains(&plugin.as_str());
            if work.queued > 0 && !is_ours && program.plugin(&plugin).is_none() {
                stranded.insert(plugin, work.queued);
            }
        }
        Ok(stranded)
    }

    /// Jobs that this node does not take. If other nodes share the ledger, one of them may run the plugin; then the check passes.
    pub(super) async fn stranded_checks(&self) -> Result<Vec<ServiceCheck>, Error> {
        let stranded = self.stranded_jobs().await?;
        if stranded.is_empty() {
            return Ok(Vec::new());
        }
        let program = self.program();
        let nodes = self.engine().nodes(Operator::vouched()).await?;
        let is_shared = nodes.iter().any(|node| !node.here);
        let left_out: BTreeSet<&str> = program.left_out().map(|(name, _)| name).collect();
        let checks = stranded.into_iter().map(|(plugin, jobs)| {
            let why = program.missing_plugin(&plugin);
            let what = "restore the plugin and reload, or cancel the jobs with `job cancel`";
            let detail = format!("queued jobs that this node cannot run: {jobs}; {why}; {what}");
            let mut check = ServiceCheck::of(&format!("jobs of {plugin}"), Some(detail));
            let is_unknown = !program.is_known(&plugin) && !left_out.contains(plugin.as_str());
            check.ok = is_shared && is_unknown;
            check
        });
        Ok(checks.collect())
    }

    /// Checks that the newest jobs can be read, and that finished ones have an end time.
    pub async fn selfcheck(&self) -> Result<Vec<ServiceCheck>, Error> {
        let (mut unreadable, mut endless) = (Vec::new(), Vec::new());
        let mut filter = every_job(WHOLE_ROWS);
        for _ in 0..SCANNED_MAX / WHOLE_ROWS as usize {
            let page = self.engine().intents(filter.clone()).await?;
            for intent in &page.intents {
                if Job::read(intent).is_err() {
                    unreadable.push(job_id(intent.id));
                }
                if is_over(intent) && intent.settled_at.is_none() {
                    endless.push(job_id(intent.id));
                }
            }
            filter.before = page.next;
            if page.next.is_none() {
                break;
            }
        }
        let seal = self.engine().check_seal().await;
        Ok(vec![
            ServiceCheck::of("seal_key", seal.err().map(|error| error.to_string())),
            ServiceCheck::of("readable_jobs", named(&unreadable)),
            ServiceCheck::of("ended_jobs", named(&endless)),
        ])
    }

    /// The schedules with their open jobs.
    pub async fn scheduler_jobs(&self) -> Result<Vec<ScheduleInFlight>, Error> {
        let schedules = self.schedules().await?;
        // Several schedules may share a command.
        let mut open: BTreeMap<(String, String), Vec<(String, String)>> = BTreeMap::new();
        for schedule in &schedules {
            let of = (schedule.plugin.clone(), schedule.command.clone());
            if let Entry::Vacant(first) = open.entry(of) {
                let jobs = self.scheduled(&schedule.plugin, &schedule.command).await?;
                first.insert(jobs);
            }
        }
        let shown = schedules.into_iter().map(|schedule| {
            let of = (schedule.plugin.clone(), schedule.command.clone());
            let all = open.get(&of).map_or(&[][..], Vec::as_slice);
            let own = all.iter().filter(|(id, _)| *id == schedule.schedule_id);
            ScheduleInFlight {
                jobs: own.map(|(_, job)| job.clone()).collect(),
                is_capped: all.len() >= IN_FLIGHT_MAX as usize,
                schedule,
            }
        });
        Ok(shown.collect())
    }

    /// The open jobs of a command, each with the id of the schedule that created it, or an empty text.
    async fn scheduled(&self, plugin: &str, command: &str) -> Result<Vec<(String, String)>, Error> {
        let engine = self.engine();
        let open = engine
            .open_jobs(plugin, Some(command), IN_FLIGHT_MAX)
            .await?;
        let mut found = Vec::new();
        for job in open {
            let whole = self.observe_job(job.id).await?;
            let read = whole.and_then(|intent| Job::read(&intent).ok());
            let made = read.filter(|job| job.submitted_by == SubmittedBy::Scheduler);
            let schedule = made.and_then(|job| job.schedule_id);
            found.push((schedule.unwrap_or_default(), job_id(job.id)));
        }
        Ok(found)
    }
}

pub(super) fn plugin_check(name: &str, unhealthy_reason: Option<String>) -> ServiceCheck {
    ServiceCheck::of(&format!("plugin {name}"), unhealthy_reason)
}

/// Plugins that are installed or configured but do not run.
pub(super) fn left_out(program: &Program) -> Vec<ServiceCheck> {
    let left_out = program.left_out();
    let checks =
        left_out.map(|(name, why)| plugin_check(name, Some(format!("it was skipped: {why}"))));
    checks.collect()
}

fn named(ids: &[String]) -> Option<String> {
    let first = ids.iter().take(NAMED_MAX).map(String::as_str);
    let first = first.collect::<Vec<_>>().join(", ");
    (!ids.is_empty()).then(|| format!("{} rows, such as {first}", ids.len()))
}
