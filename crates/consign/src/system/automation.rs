//! The runtime of one configuration tree, from its start to its end, whoever owns the ledger.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use consign_automation::config::{Problem, Severity, Verify};
use consign_automation::plugin::confine::Guarded;
use consign_automation::plugin::run::Launcher;
use consign_automation::program::Program;
use consign_automation::runtime::{Options, Runtime};
use consign_engine::Engine;
use consign_faces::automation as face;
use consign_faces::automation::listeners::{self, Listeners, Serving, Shares};
use consign_faces::automation::loader::Loader;
use consign_faces::web::credentials::{SECRET_CHARS_MIN, SecretDigest};
use consign_faces::web::listener_policy::ListenerPolicy;
use consign_faces::web::unix::UnixSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::state::StateDir;
use crate::PLUGIN_LAUNCH;
use crate::commands::automation::config::tree::Tree;
use crate::failure::Failure;
use crate::serve::ledger::random_bytes;

/// How long jobs that run may take when the service is told to stop; those that need longer run again at the next start.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

const STAYS: &str = "the configuration was not reloaded; the old one stays";

/// A running runtime, the files that it follows, and the ways in.
#[derive(Debug)]
pub(crate) struct Automation {
    files: Files,
    control: JoinHandle<()>,
    serving: JoinHandle<Result<(), listeners::Error>>,
    drain: watch::Sender<bool>,
}

/// A runtime and the files that it follows.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    runtime: Runtime,
    loader: Loader,
}

impl Automation {
    /// `node` names this process among those that share the ledger; what an earlier start of that name left behind is taken
    /// back. The caller holds the lock of the state directory.
    pub(crate) async fn start(
        engine: Engine,
        tree: Tree,
        program: Program,
        node: String,
        policy: ListenerPolicy,
        guarded: Guarded,
        connections: Shares,
    ) -> anyhow::Result<Self> {
        refuse_short_secrets(&program)?;
        let state = StateDir::of(program.config());
        let socket = state.socket();
        state.clear_temporary();
        let plugins = program.plugins().count();
        // An address that is taken is known before anything runs.
        let listeners = Listeners::bind(&program, connections, policy.trust_proxy).await?;
        let (api, webhooks) = (listeners.api(), listeners.webhooks());
        let runtime = Runtime::start(Options {
            engine,
            program: Arc::new(program),
            node,
            launcher: launcher(),
            guarded,
        })
        .await?;
        let (drain, draining) = watch::channel(false);
        let tree = Arc::new(tree);
        let loader = loader(&runtime, &tree);
        let serving = Serving {
            loader: loader.clone(),
            draining,
            binary_path: std::env::current_exe().ok(),
            request_id_seed: u128::from_le_bytes(random_bytes()?),
            policy,
            throttles: true,
        };
        // Before the socket: whoever finds that finds the token of this start.
        let token = state.new_control_token()?;
        let token = SecretDigest::new(token.reveal().to_owned());
        // The caller holds the lock of the directory, so a socket that is there is left over.
        let bound = UnixSocket::bind(&socket);
        let bound = bound.with_context(|| format!("cannot make {}", socket.display()))?;
        let (of_control, to_control) = (runtime.clone(), serving.clone());
        let control = tokio::spawn(async move {
            listeners::control(bound, of_control, &to_control, token).await;
        });
        let serving = tokio::spawn(listeners.run(runtime.clone(), serving));
        let config = tree.path.display().to_string();
        let (api, webhooks) = (
            api.map(|at| at.to_string()),
            webhooks.map(|at| at.to_string()),
        );
        tracing::info!(
            component = "service",
            config,
            plugins,
            api,
            webhooks,
            "the automation runs"
        );
        Ok(Self {
            files: Files { runtime, loader },
            control,
            serving,
            drain,
        })
    }

    /// What is odd about a configuration that holds.
    pub(crate) fn tell(problems: &[Problem]) {
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

    /// What a SIGHUP needs.
    pub(crate) fn files(&self) -> Files {
        self.files.clone()
    }

    /// Takes no more requests and no more jobs, and waits for those that run, for a bounded time.
    pub(crate) async fn stop(self) {
        let runtime = &self.files.runtime;
        let running = runtime.running();
        tracing::info!(component = "service", running, "the automation stops");
        self.drain.send_replace(true);
        runtime.stop(STOP_PATIENCE).await;
        // Whoever still waits there is cut off; what was asked for is in the ledger or was not begun.
        self.control.abort();
        match self.serving.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(component = "service", %error, "requests were cut off");
            }
            Err(error) => tracing::error!(component = "service", %error, "a server broke off"),
        }
    }
}

impl Files {
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Reads the configuration again. One that does not hold is told in the log, and the old one stays.
    pub(crate) async fn reload(&self) {
        if let Err(error) = self.loader.reload(&self.runtime).await {
            tracing::error!(component = "reload", %error, "{STAYS}");
        }
    }
}

/// Reads the configuration of a tree again, for whoever asks.
pub(super) fn loader(runtime: &Runtime, tree: &Arc<Tree>) -> Loader {
    let (runtime, tree) = (runtime.clone(), Arc::clone(tree));
    Loader::new(move || {
        // The strictness that holds cannot be taken away by the file that it is about.
        let strictness = runtime.program().config().service.strictness;
        let loaded = tree.load(Verify::AsRunning(strictness));
        let (program, problems) = loaded.map_err(|refused| refused.to_string())?;
        Automation::tell(&problems);
        refuse_short_secrets(&program).map_err(|refused| refused.to_string())?;
        Ok(Arc::new(program))
    })
}

/// Short ones can be guessed, however seldom one may try.
fn refuse_short_secrets(program: &Program) -> Result<(), Failure> {
    let config = program.config();
    let token = config.registry.shorter_than(SECRET_CHARS_MIN);
    let token = token.filter(|_| config.api.enabled);
    let mut endpoints = config
        .webhooks
        .iter()
        .flat_map(|webhooks| &webhooks.endpoints);
    let endpoint = endpoints.find(|endpoint| endpoint.secret.expose().len() < SECRET_CHARS_MIN);
    let what = match (token, endpoint) {
        (Some(token), _) => format!("the API token `{token}`"),
        (None, Some(endpoint)) => format!("the secret of the webhook {}", endpoint.path),
        (None, None) => return Ok(()),
    };
    let message = format!("{what} is shorter than {SECRET_CHARS_MIN} characters");
    let hint = "set it to a long random text, such as the output of `openssl rand -hex 20`";
    Err(Failure::usage(message).hint(hint))
}

/// The HTTP interface for those whom something else has let in already.
pub(super) fn local_router(
    runtime: &Runtime,
    loader: Loader,
    draining: watch::Receiver<bool>,
) -> Router {
    let options = face::Options {
        loader,
        access: face::Access::Local,
        draining,
        binary_path: std::env::current_exe().ok(),
    };
    face::router(runtime.clone(), options)
}

/// Our own program, still the one that runs if its file was replaced.
pub(super) fn launcher() -> Launcher {
    Launcher {
        program: "/proc/self/exe".into(),
        arguments: vec![PLUGIN_LAUNCH.into()],
    }
}
