//! The runtime of one configuration tree, from its start to its end, whoever owns the ledger.

use std::sync::Arc;
use std::time::Duration;

use consign_automation::config::{Problem, Severity, Verify};
use consign_automation::plugin::run::Launcher;
use consign_automation::program::Program;
use consign_automation::runtime::{Options, Runtime};
use consign_engine::Engine;
use tokio::task::spawn_blocking;

use crate::PLUGIN_LAUNCH;
use crate::commands::automation::config::tree::Tree;

/// How long jobs that run may take when the service is told to stop; those that need longer run again at the next start.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A running runtime and the files that it follows.
#[derive(Clone, Debug)]
pub(crate) struct Automation {
    runtime: Runtime,
    tree: Arc<Tree>,
}

impl Automation {
    /// `node` names this process among those that share the ledger; what an earlier start of that name left behind is taken
    /// back.
    pub(crate) async fn start(
        engine: Engine,
        tree: Tree,
        program: Program,
        node: String,
    ) -> anyhow::Result<Self> {
        let plugins = program.plugins().count();
        let runtime = Runtime::start(Options {
            engine,
            program: Arc::new(program),
            node,
            launcher: launcher(),
        })
        .await?;
        let config = tree.path.display().to_string();
        tracing::info!(
            component = "service",
            config,
            plugins,
            "the automation runs"
        );
        Ok(Self {
            runtime,
            tree: Arc::new(tree),
        })
    }

    /// Reads the configuration again. One that does not hold is told in the log, and the old one stays.
    pub(crate) async fn reload(&self) {
        let tree = Arc::clone(&self.tree);
        // The strictness that holds cannot be taken away by the file that it is about.
        let strictness = self.runtime.program().config().service.strictness;
        let loaded = spawn_blocking(move || tree.load(Verify::AsRunning(strictness))).await;
        match loaded {
            Ok(Ok((program, problems))) => {
                tell(&problems);
                self.runtime.adopt(Arc::new(program));
                tracing::info!(component = "reload", "the configuration was reloaded");
            }
            Ok(Err(refused)) => {
                let error = refused.to_string();
                tracing::error!(
                    component = "reload",
                    error,
                    "the configuration was not reloaded; the old one stays"
                );
            }
            Err(error) => tracing::error!(component = "reload", %error, "the reload broke off"),
        }
    }

    /// Takes no more jobs and waits for those that run, for a bounded time.
    pub(crate) async fn stop(self) {
        let running = self.runtime.running();
        tracing::info!(component = "service", running, "the automation stops");
        self.runtime.stop(STOP_PATIENCE).await;
    }
}

/// Our own program, still the one that runs if its file was replaced.
fn launcher() -> Launcher {
    Launcher {
        program: "/proc/self/exe".into(),
        arguments: vec![PLUGIN_LAUNCH.into()],
    }
}

/// What is odd about a configuration that holds.
pub(super) fn tell(problems: &[Problem]) {
    for problem in problems {
        let (file, line) = (problem.file.display(), problem.line);
        let (message, fix) = (&problem.message, &problem.fix);
        match problem.severity {
            Severity::Notice => {
                tracing::debug!(component = "config", %file, line, fix, "{message}");
            }
            Severity::Warning | Severity::Error => {
                tracing::warn!(component = "config", %file, line, fix, "{message}");
            }
        }
    }
}
