//! The figures, problems and metrics of an automation that runs inside a server, for the operators of that server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::{Error, Operator};
use consign_web::shell::{
    MetricsText, MountFuture, PartReport, ProblemLevel, Reporter, ServerProblem,
};
use serde_json::{Map, json};
use tokio::sync::Mutex;

use crate::config::{ConfigProblem, Severity};
use crate::runtime::Runtime;
use crate::runtime::reads::ServiceCheck;

/// A configuration with many plugins takes a moment to read and to compare with its seal.
const CONFIG_AGE_MAX: Duration = Duration::from_secs(30);

type CheckFn = dyn Fn() -> Vec<ConfigProblem> + Send + Sync;

/// Reports on one runtime.
pub struct AutomationReporter {
    runtime: Runtime,
    check: Arc<CheckFn>,
    /// When the configuration on disk was checked last, and what was found.
    config: Mutex<Option<(Instant, Vec<ConfigProblem>)>>,
}

impl AutomationReporter {
    /// `check` reads the configuration on disk and compares it with its seal. It may block.
    pub fn new(
        runtime: Runtime,
        check: impl Fn() -> Vec<ConfigProblem> + Send + Sync + 'static,
    ) -> Self {
        Self {
            runtime,
            check: Arc::new(check),
            config: Mutex::new(None),
        }
    }

    async fn config_problems(&self) -> Vec<ServerProblem> {
        let mut last = self.config.lock().await;
        let is_new = |(at, _): &&(Instant, _)| at.elapsed() < CONFIG_AGE_MAX;
        if let Some((_, problems)) = last.as_ref().filter(is_new) {
            return problems.iter().filter_map(of_config).collect();
        }
        let check = Arc::clone(&self.check);
        let found = tokio::task::spawn_blocking(move || check()).await;
        let (_, problems) = last.insert((Instant::now(), found.unwrap_or_default()));
        problems.iter().filter_map(of_config).collect()
    }

    async fn whole(&self) -> Result<PartReport, Error> {
        let runtime = &self.runtime;
        let queue = runtime.queue_figures().await?;
        let breakers = runtime.breaker_counts().await?;
        let mut figures = Map::new();
        figures.insert(
            "plugins".to_owned(),
            json!(runtime.program().plugins().count()),
        );
        figures.insert("running_here".to_owned(), json!(runtime.running()));
        figures.insert("queued".to_owned(), json!(queue.queued));
        figures.insert("delayed".to_owned(), json!(queue.delayed));
        figures.insert("running".to_owned(), json!(queue.running));
        figures.insert("dead".to_owned(), json!(queue.dead));
        let by_state = breakers
            .iter()
            .map(|(state, count)| (state.as_str().to_owned(), json!(count)));
        figures.insert(
            "breakers".to_owned(),
            by_state.collect::<Map<_, _>>().into(),
        );
        let mut problems = Vec::new();
        problems.extend(self.config_problems().await);
        let checks = runtime.doctor().await?.into_iter();
        problems.extend(checks.filter_map(problem_of));
        Ok(PartReport { figures, problems })
    }
}

/// Notices are left out.
fn of_config(problem: &ConfigProblem) -> Option<ServerProblem> {
    let (level, what) = match problem.severity {
        Severity::Error => (
            ProblemLevel::Error,
            "the configuration of the automation on disk cannot be used",
        ),
        Severity::Warning => (
            ProblemLevel::Warning,
            "the configuration of the automation on disk needs attention",
        ),
        Severity::Notice => return None,
    };
    Some(ServerProblem {
        level,
        id: "automation_config",
        what: what.to_owned(),
        why: problem.to_string(),
        next: "see all problems with: consign automation config check".to_owned(),
    })
}

fn problem_of(check: ServiceCheck) -> Option<ServerProblem> {
    let why = check.detail.filter(|_| !check.ok)?;
    Some(ServerProblem {
        level: ProblemLevel::Warning,
        id: "automation",
        what: format!("{} of the automation needs attention", check.name),
        why,
        next: "see it with: consign system doctor".to_owned(),
    })
}

impl Reporter for AutomationReporter {
    fn name(&self) -> &'static str {
        "automation"
    }

    fn report(&self, _: Operator) -> MountFuture<'_, Result<PartReport, Error>> {
        Box::pin(self.whole())
    }

    fn metrics<'a>(
        &'a self,
        _: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let runtime = &self.runtime;
            let queue = runtime.queue_figures().await?;
            let name = "consign_automation_jobs";
            text.family(name, "gauge", "Jobs of the automation by what they do");
            for (state, count) in [
                ("queued", queue.queued.saturating_sub(queue.delayed)),
                ("delayed", queue.delayed),
                ("running", queue.running),
                ("dead", queue.dead),
            ] {
                text.sample(name, &[("state", state)], count);
            }
            text.single(
                "consign_automation_running_here",
                "gauge",
                "Jobs that run in this process",
                runtime.running() as u64,
            );
            let name = "consign_automation_breakers";
            text.family(name, "gauge", "Plugins by the state of their breakers");
            for (state, count) in runtime.breaker_counts().await? {
                text.sample(name, &[("state", state.as_str())], count);
            }
            Ok(())
        })
    }
}

impl fmt::Debug for AutomationReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AutomationReporter")
    }
}
