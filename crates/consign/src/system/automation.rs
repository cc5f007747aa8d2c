//! The running automation of one configuration tree, on any ledger.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use consign_automation::config::{ConfigProblem, SealCheck, Severity};
use consign_automation::http::listeners::{self, AutomationListeners, ConnectionShares, Serving};
use consign_automation::http::loader::Loader;
use consign_automation::http::report::AutomationReporter;
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::plugin::run::Launcher;
use consign_automation::program::{self, Program};
use consign_automation::runtime::{MeshWork, MessageBus, Options, Runtime};
use consign_engine::Engine;
use consign_web::credentials::{SECRET_CHARS_MIN, SecretDigest};
use consign_web::listener_policy::ListenerPolicy;
use consign_web::unix::UnixSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::state::StateDir;
use crate::PLUGIN_LAUNCH;
use crate::commands::automation::config::tree::ConfigTree;
use crate::failure::Failure;
use crate::serve::ledger::random_bytes;

/// How long a stop waits for running jobs; those that need longer run again at the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

const RELOAD_FAILED: &str = "the configuration was not reloaded; the old one stays active";

/// What the process provides to an automation.
#[derive(Debug)]
pub(crate) struct AutomationHost {
    pub(crate) engine: Engine,
    /// The name of this process among those that share the ledger. Jobs that an earlier start with this name left behind are
    /// recovered.
    pub(crate) node: String,
    pub(crate) policy: ListenerPolicy,
    pub(crate) guarded: GuardedPaths,
    /// The message bus of the same process.
    pub(crate) bus: Option<Arc<dyn MessageBus>>,
    /// The meshes of the same process.
    pub(crate) mesh: Option<Arc<dyn MeshWork>>,
    pub(crate) connections: ConnectionShares,
}

/// A running automation with its listeners.
#[derive(Debug)]
pub(crate) struct Automation {
    reload: ReloadHandle,
    control: JoinHandle<()>,
    serving: JoinHandle<Result<(), listeners::Error>>,
    drain: watch::Sender<bool>,
}

/// The runtime and the loader of its configuration.
#[derive(Clone, Debug)]
pub(crate) struct ReloadHandle {
    runtime: Runtime,
    loader: Loader,
    tree: Arc<ConfigTree>,
}

impl Automation {
    /// The caller holds the lock of the state directory.
    pub(crate) async fn start(
        host: AutomationHost,
        tree: ConfigTree,
        program: Program,
    ) -> anyhow::Result<Self> {
        let AutomationHost {
            engine,
            node,
            policy,
            guarded,
            bus,
            mesh,
            connections,
        } = host;
        refuse_short_secrets(&program)?;
        let state = StateDir::of(program.config());
        let socket = state.socket();
        state.clear_temporary();
        let plugins = program.plugins().count();
        // Bind first, so that an address in use is detected before anything runs.
        let listeners =
            AutomationListeners::bind(&program, connections, policy.trust_proxy).await?;
        let (api, webhooks) = (listeners.api(), listeners.webhooks());
        let runtime = Runtime::start(Options {
            engine,
            program: Arc::new(program),
            node,
            launcher: launcher(),
            guarded,
            bus,
            mesh,
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
        // Before the socket, so that a client that finds the socket finds the token of this start.
        let token = state.new_control_token()?;
        let token = SecretDigest::new(token.reveal().to_owned());
        // The caller holds the lock of the directory, so an existing socket is stale.
        let bound = UnixSocket::bind(&socket);
        let bound = bound.with_context(|| format!("cannot create {}", socket.display()))?;
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
            "the automation is running"
        );
        Ok(Self {
            reload: ReloadHandle {
                runtime,
                loader,
                tree,
            },
            control,
            serving,
            drain,
        })
    }

    /// Logs the warnings and notices of a valid configuration.
    pub(crate) fn log_problems(problems: &[ConfigProblem]) {
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

    /// The handle for a reload on SIGHUP.
    pub(crate) fn reload_handle(&self) -> ReloadHandle {
        self.reload.clone()
    }

    /// Stops accepting requests and claiming jobs, and waits for running ones up to a limit.
    pub(crate) async fn stop(self) {
        let runtime = &self.reload.runtime;
        let running = runtime.running();
        tracing::info!(component = "service", running, "the automation is stopping");
        self.drain.send_replace(true);
        runtime.stop(STOP_TIMEOUT).await;
        // Open requests are cut off; what they asked for is either in the ledger or was not started.
        self.control.abort();
        match self.serving.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(component = "service", %error, "requests were cut off");
            }
            Err(error) => tracing::error!(component = "service", %error, "a listener panicked"),
        }
    }
}

impl ReloadHandle {
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What the operators of a server hear of it.
    pub(crate) fn reporter(&self) -> AutomationReporter {
        let (runtime, tree) = (self.runtime.clone(), Arc::clone(&self.tree));
        AutomationReporter::new(self.runtime.clone(), move || {
            let strictness = runtime.program().config().service.strictness;
            let check = SealCheck::AsRunning(strictness);
            program::load(&tree.path, &tree.environment, check).problems
        })
    }

    /// Reloads the configuration. An invalid one is logged, and the old one stays.
    pub(crate) async fn reload(&self) {
        if let Err(error) = self.loader.reload(&self.runtime).await {
            tracing::error!(component = "reload", %error, "{RELOAD_FAILED}");
        }
    }
}

/// A loader that reads the configuration of a tree again.
pub(super) fn loader(runtime: &Runtime, tree: &Arc<ConfigTree>) -> Loader {
    let (runtime, tree) = (runtime.clone(), Arc::clone(tree));
    Loader::new(move || {
        // The running strictness applies, so that a file cannot lower it for itself.
        let strictness = runtime.program().config().service.strictness;
        let loaded = tree.load(SealCheck::AsRunning(strictness));
        let (program, problems) = loaded.map_err(|refused| refused.to_string())?;
        Automation::log_problems(&problems);
        refuse_short_secrets(&program).map_err(|refused| refused.to_string())?;
        Ok(Arc::new(program))
    })
}

/// Short secrets can be guessed, even at a low rate.
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

/// The HTTP interface for callers that are authenticated already.
pub(super) fn local_router(
    runtime: &Runtime,
    loader: Loader,
    draining: watch::Receiver<bool>,
) -> Router {
    let options = consign_automation::http::Options {
        loader,
        access: consign_automation::http::ApiAccess::Local,
        draining,
        binary_path: std::env::current_exe().ok(),
    };
    consign_automation::http::router(runtime.clone(), options)
}

/// This binary, even if its file was replaced.
pub(super) fn launcher() -> Launcher {
    Launcher {
        program: "/proc/self/exe".into(),
        arguments: vec![PLUGIN_LAUNCH.into()],
    }
}
