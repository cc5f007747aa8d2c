//! Hooks: scripts that the daemon runs when something happens, and before it sends.
//!
//! Invariant: only a script with its own section in `hooks.toml` runs; at most `concurrency` of them run at once, and the code
//! that reports an event never waits for one. A hook gets its event, the listed variables and, if its section names scopes, a
//! token for those; it never gets a token of the broker or of the daemon.

mod audit;
mod isolation;
mod pre_send;
mod process;
#[cfg(test)]
mod tests;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use consign_kernel::plant::{self, Plant};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::log::DaemonLog;
use super::metrics::{DaemonMetric, DaemonMetrics};
use super::{private_file, random};
use crate::config::{DaemonConfigError, HookSettings, HooksFile};
use crate::destination::Destination;
use crate::hook_event::{HookOutput, hook_input};
use crate::ipc::IpcRefusal;
use crate::role::words;
use crate::ulid::MeshUlid;
pub use audit::{HookAudit, HookReply, HookRun};
pub use isolation::IsolationPrograms;
pub use pre_send::{PreSendChange, PreSendOutcome};
pub use tokens::HookOrigin;

use isolation::{Isolation, SandboxPaths};
use process::{HookCommand, HookEnd};
use tokens::HookTokens;

/// The folder of scripts in the folder of the daemon.
pub const HOOKS_FOLDER: &str = "hooks";
/// The file in that folder without which no hook runs.
pub const HOOKS_FILE: &str = "hooks.toml";
/// Runs that wait for a free place. Further events are logged and run no hook, so that a flood of messages and a slow script
/// do not fill the memory.
pub const WAITING_HOOKS_MAX: usize = 1_000;
const PATH: &str = "/usr/bin:/bin";

words! {
    /// What a hook is run for. A topic has a hook of its own, `on-topic-NAME`, with `%2F` for a slash.
    HookKind {
        Message => "on-message",
        Dm => "on-dm",
        Mention => "on-mention",
        FileShare => "on-file-share",
        Disconnect => "on-disconnect",
        Reconnect => "on-reconnect",
        Startup => "on-startup",
        PreSend => "pre-send",
    }
}

/// What the hooks of a daemon need.
#[derive(Debug, Clone)]
pub struct HookOptions {
    /// The folder of the daemon.
    pub directory: PathBuf,
    pub mesh: String,
    /// Where a hook calls the daemon.
    pub socket: PathBuf,
    /// The folder with the keys of joined meshes, which a sandbox hides as it hides that of the daemon.
    pub secret_folder: PathBuf,
    /// From the settings, or off in CI.
    pub enabled: bool,
    pub concurrency: usize,
    pub default_timeout_s: u64,
    pub stdin_limit_bytes: usize,
    pub programs: IsolationPrograms,
}

/// A received message, for its hooks.
#[derive(Debug, Clone)]
pub struct HookMessage {
    /// The data of the event `message`.
    pub event: Map<String, Value>,
    pub origin: HookOrigin,
    pub is_direct: bool,
    /// Whether it mentions this daemon's name.
    pub is_mention: bool,
}

/// The hooks of a daemon. Clones share their places.
#[derive(Debug, Clone)]
pub struct Hooks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: HookOptions,
    file: RwLock<HooksFile>,
    isolation: Isolation,
    tokens: HookTokens,
    /// Places for hooks of events.
    places: Arc<Semaphore>,
    /// Places for `pre-send`. They are apart, because a hook of an event that sends waits for `pre-send`.
    send_places: Arc<Semaphore>,
    /// How many places there are of each.
    divided: Mutex<HookPlaces>,
    waiting: AtomicUsize,
    runs: mpsc::UnboundedSender<HookRun>,
    log: DaemonLog,
    metrics: DaemonMetrics,
}

/// How many hooks run at once: for events, and for `pre-send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HookPlaces {
    events: usize,
    sends: usize,
}

impl HookPlaces {
    fn of(file: &HooksFile, concurrency: usize) -> Self {
        let sends = if file.enabled(HookKind::PreSend.as_str()).is_some() {
            (concurrency / 2).max(1)
        } else {
            0
        };
        Self {
            events: concurrency.saturating_sub(sends).max(1),
            sends: sends.max(1),
        }
    }
}

/// Changes the number of places. Those of running hooks are taken away when the hooks end.
fn resize(places: &Arc<Semaphore>, before: usize, after: usize) {
    places.add_permits(after.saturating_sub(before));
    let Ok(fewer) = u32::try_from(before.saturating_sub(after)) else {
        return;
    };
    if fewer > 0 {
        let taken = Arc::clone(places).acquire_many_owned(fewer);
        tokio::spawn(async move {
            if let Ok(taken) = taken.await {
                taken.forget();
            }
        });
    }
}

impl Hooks {
    /// Reads `hooks.toml`. Ends of runs are received from the channel, with replies to post.
    pub fn load(
        options: HookOptions,
        log: &DaemonLog,
        metrics: &DaemonMetrics,
    ) -> Result<(Self, mpsc::UnboundedReceiver<HookRun>), DaemonConfigError> {
        let file = read_file(&options, log)?;
        let (runs, receiver) = mpsc::unbounded_channel();
        let places = HookPlaces::of(&file, options.concurrency);
        let for_events = if plant::on(Plant::UnboundedHooks) {
            Semaphore::MAX_PERMITS
        } else {
            places.events
        };
        let paths = SandboxPaths {
            // Ordering: what is mounted later is seen, and one folder may be in the other.
            secrets: vec![options.secret_folder.clone(), options.directory.clone()],
            readable: vec![options.directory.join(HOOKS_FOLDER), options.socket.clone()],
        };
        let shared = Shared {
            isolation: Isolation::new(options.programs.clone(), paths),
            tokens: HookTokens::new(metrics.clone()),
            places: Arc::new(Semaphore::new(for_events)),
            send_places: Arc::new(Semaphore::new(places.sends)),
            divided: Mutex::new(places),
            waiting: AtomicUsize::new(0),
            runs,
            log: log.clone(),
            metrics: metrics.clone(),
            file: RwLock::new(file),
            options,
        };
        Ok((Self(Arc::new(shared)), receiver))
    }

    /// Reads `hooks.toml` again. If it is invalid, the old settings stay.
    pub fn reload(&self) -> Result<(), DaemonConfigError> {
        let file = read_file(&self.0.options, &self.0.log)?;
        let places = HookPlaces::of(&file, self.0.options.concurrency);
        let before = {
            let divided = self.0.divided.lock();
            let mut divided = divided.unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *divided, places)
        };
        resize(&self.0.places, before.events, places.events);
        resize(&self.0.send_places, before.sends, places.sends);
        *self.0.file.write().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// The hooks that would run, by name, for `daemon hooks list`.
    pub fn names(&self) -> Vec<String> {
        let file = self.0.file.read().unwrap_or_else(PoisonError::into_inner);
        let enabled = file.0.iter().filter(|(_, hook)| hook.enabled);
        enabled.map(|(name, _)| name.clone()).collect()
    }

    /// Runs the hooks of a received message. Returns at once.
    pub fn fire_message(&self, message: &HookMessage) {
        let mut names = vec![HookKind::Message.as_str().to_owned()];
        if message.is_direct {
            names.push(HookKind::Dm.as_str().to_owned());
        }
        if message.is_mention {
            names.push(HookKind::Mention.as_str().to_owned());
        }
        if let Some(topic) = &message.origin.topic {
            names.push(format!("on-topic-{}", topic.as_str().replace('/', "%2F")));
        }
        for name in names {
            self.start(name, &message.event, &message.origin);
        }
    }

    /// Runs the hook of another event. Returns at once.
    pub fn fire(&self, kind: HookKind, event: &Map<String, Value>) {
        self.start(kind.as_str().to_owned(), event, &HookOrigin::default());
    }

    /// Whether a running hook holds this token.
    pub fn knows(&self, token: &str) -> bool {
        self.0.tokens.knows(token, Instant::now())
    }

    /// Checks a request that came with the token of a hook. `destination` is where it sends; `None` is any other request, which
    /// no token covers.
    pub fn authorize(
        &self,
        token: &str,
        destination: Option<&Destination>,
    ) -> Result<(), IpcRefusal> {
        self.0.tokens.authorize(token, destination, Instant::now())
    }

    fn settings(&self, name: &str) -> Option<HookSettings> {
        let file = self.0.file.read().unwrap_or_else(PoisonError::into_inner);
        file.enabled(name).cloned()
    }

    fn start(&self, name: String, event: &Map<String, Value>, origin: &HookOrigin) {
        let Some(settings) = self.settings(&name) else {
            return;
        };
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_HOOKS_MAX {
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
            self.0.log.warn("hook_dropped", &json!({"hook": name}));
            self.0
                .metrics
                .count(DaemonMetric::HookInvocations, &[&name, "dropped"]);
            return;
        }
        let hooks = self.clone();
        let (event, origin) = (event.clone(), origin.clone());
        tokio::spawn(async move {
            let place = hooks.0.places.clone().acquire_owned().await;
            hooks.0.waiting.fetch_sub(1, Ordering::Relaxed);
            let (audit, end) = hooks.run(&name, &settings, &event, &origin).await;
            drop(place);
            hooks.finish(&settings, &event, &origin, audit, &end);
        });
    }

    /// Runs one hook to its end. The caller holds a place.
    async fn run(
        &self,
        name: &str,
        settings: &HookSettings,
        event: &Map<String, Value>,
        origin: &HookOrigin,
    ) -> (HookAudit, HookEnd) {
        let event_id = event_id(event);
        let scopes = &settings.capability_token_scope;
        let token = (!scopes.is_empty()).then(|| self.0.tokens.mint(name, scopes, origin));
        let folder = self.0.options.directory.join(HOOKS_FOLDER);
        let script = folder.join(format!("{name}.sh"));
        let isolated = self.0.isolation.command(&script, settings).await;
        for &reason in &isolated.unenforceable {
            let fields = json!({"hook": name, "reason": reason});
            self.0.log.warn("hook_policy_unenforceable", &fields);
            self.0
                .metrics
                .count(DaemonMetric::HookUnenforceable, &[name, reason]);
        }
        let mut variables = vec![
            ("CLAUDEMESH_MESH", self.0.options.mesh.clone()),
            ("CLAUDEMESH_HOOK_NAME", name.to_owned()),
            ("CLAUDEMESH_EVENT_ID", event_id.clone()),
            (
                "CLAUDEMESH_DAEMON_SOCK",
                self.0.options.socket.to_string_lossy().into_owned(),
            ),
            ("PATH", PATH.to_owned()),
        ];
        if let Some(token) = &token {
            variables.push(("CLAUDEMESH_CAPABILITY_TOKEN", token.reveal().to_owned()));
        }
        let timeout_s = settings
            .timeout_s
            .unwrap_or(self.0.options.default_timeout_s);
        let redacted: &[String] = if plant::on(Plant::HookRedactsNothing) {
            &[]
        } else {
            &settings.redact_payload
        };
        let command = HookCommand {
            program: isolated.program,
            arguments: isolated.arguments,
            directory: folder,
            variables,
            input: hook_input(event, redacted, self.0.options.stdin_limit_bytes),
            output_bytes_max: settings.output_size_limit,
            timeout: Duration::from_secs(timeout_s),
            signals_group: settings.killpg_on_timeout,
        };
        let end = process::run(command).await;
        let calls = token.as_ref().map_or(0, tokens::HookToken::calls);
        (HookAudit::new(name, event_id, &end, calls), end)
    }

    /// Logs, counts and reports the end of a hook of an event.
    fn finish(
        &self,
        settings: &HookSettings,
        event: &Map<String, Value>,
        origin: &HookOrigin,
        mut audit: HookAudit,
        end: &HookEnd,
    ) {
        let output = HookOutput::parse(&end.stdout.kept);
        let is_allowed = settings.allow_reply || plant::on(Plant::HookRepliesAlways);
        let reply = match output {
            HookOutput::Reply(body) if is_allowed && audit.exit == 0 => {
                HookReply::new(body, event, origin)
            }
            HookOutput::Invalid => {
                let fields = json!({"hook": audit.hook, "event_id": audit.event_id});
                self.0.log.warn("hook_output_invalid", &fields);
                None
            }
            HookOutput::Empty | HookOutput::Object(_) | HookOutput::Reply(_) => None,
        };
        audit.replied = reply.is_some();
        self.record(settings, &audit, end);
        // Without a receiver the daemon is stopping.
        let _ = self.0.runs.send(HookRun { audit, reply });
    }

    fn record(&self, settings: &HookSettings, audit: &HookAudit, end: &HookEnd) {
        let hook = audit.hook.as_str();
        let log = &self.0.log;
        if settings.audit {
            log.info("hook_executed", &audit.to_value());
        }
        if let Some(error) = &end.start_error {
            log.warn("hook_not_started", &json!({"hook": hook, "error": error}));
        } else if end.timed_out {
            log.warn("hook_timed_out", &json!({"hook": hook}));
        } else if audit.exit != 0 {
            let stderr = String::from_utf8_lossy(&end.stderr.kept);
            let fields = json!({"hook": hook, "exit": audit.exit, "stderr": stderr.trim()});
            log.warn("hook_failed", &fields);
        }
        if end.stdout.is_cut() || end.stderr.is_cut() {
            log.warn("hook_output_truncated", &json!({"hook": hook}));
        }
        let exit = audit.exit.to_string();
        let metrics = &self.0.metrics;
        metrics.count(DaemonMetric::HookInvocations, &[hook, &exit]);
        metrics.observe(DaemonMetric::HookDuration, &[hook], end.elapsed);
    }
}

/// The settings; none without the file, or if hooks are off.
fn read_file(options: &HookOptions, log: &DaemonLog) -> Result<HooksFile, DaemonConfigError> {
    let folder = options.directory.join(HOOKS_FOLDER);
    let unreadable = |error: std::io::Error| {
        DaemonConfigError::Syntax(format!("{HOOKS_FOLDER}/{HOOKS_FILE}: {error}"))
    };
    private_file::create_folder(&folder).map_err(unreadable)?;
    let text = private_file::read(&folder.join(HOOKS_FILE)).map_err(unreadable)?;
    let is_default = plant::on(Plant::HooksWithoutFile);
    let text = match text {
        Some(text) if options.enabled => text,
        None if is_default => "[on-message]\n".to_owned(),
        Some(_) | None => return Ok(HooksFile::default()),
    };
    let file = HooksFile::parse(&text)?;
    for (name, _) in file.0.iter().filter(|(_, hook)| hook.enabled) {
        if !is_script(&folder, name) {
            log.warn("hook_script_missing", &json!({"hook": name}));
        }
    }
    Ok(file)
}

fn is_script(folder: &Path, name: &str) -> bool {
    folder.join(format!("{name}.sh")).is_file()
}

/// The id of the event, or one for this run.
fn event_id(event: &Map<String, Value>) -> String {
    let id = event.get("id").and_then(Value::as_str);
    id.map_or_else(
        || {
            let now = jiff::Timestamp::now().as_millisecond();
            let ms = u64::try_from(now).unwrap_or_default();
            MeshUlid::new(ms, u128::from_le_bytes(random::bytes())).to_string()
        },
        // A variable cannot contain a zero byte.
        |id| id.replace('\0', ""),
    )
}
