//! `consign bench --work mesh`: messages through a daemon of the mesh, compared with publishes on the server of its broker.
//!
//! Invariant: daemon and broker are this same program with raised limits, and everything they write is in the directory of
//! the private server, which is removed at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use consign_bench::{BenchPlan, BenchReport, MeshBenchTarget, MeshSendUntil, SendRun, Workload};
use serde::Serialize;
use serde_json::Value;

use super::load;
use super::private_server::{PrivateServer, unconfigured};

/// As many as the goal names.
const CLIENTS: usize = 16;
const BACKLOG: u64 = 100_000;
/// Messages from an empty outbox, for each hundred of the backlog.
const FLOW_PERCENT: u64 = 20;
const MESH: &str = "bench";
/// Where no broker listens.
const NO_BROKER: &str = "ws://127.0.0.1:1/ws";
const READY_LIMIT: Duration = Duration::from_mins(1);
const READY_POLL: Duration = Duration::from_millis(10);
const DRAIN_LIMIT: Duration = Duration::from_mins(10);
/// Nothing that is measured may meet a limit of the daemon.
const SETTINGS: &str = "\
[outbox]
max_queue_size = 100000000
[ipc]
rate_per_s = 100000000
rate_burst = 100000000
";

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct MeshBenchReport {
    work: Workload,
    /// Accepted messages for each publish.
    ratio: f64,
    /// The rate at which a backlog drains, against that of messages from an empty outbox.
    drain_ratio: f64,
    /// Resident bytes of a connected daemon that has nothing to do.
    idle_bytes: u64,
    backlog: u64,
    /// From the connection to the broker to the last acknowledgement, of the backlog.
    drained_per_s: f64,
    /// The same from an empty outbox, sending included.
    flow_per_s: f64,
    sends: SendRun,
    stolen_share: Option<f64>,
    pub(super) publishes: BenchReport,
}

pub(super) async fn measure(
    server: &PrivateServer,
    plan: BenchPlan,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<MeshBenchReport> {
    let backlog = if plan.backlog == 0 {
        BACKLOG
    } else {
        plan.backlog
    };
    let (work, body_bytes, round) = (plan.work, plan.payload_bytes, plan.round);
    let publishing = BenchPlan {
        work: Workload::Publish,
        clients: CLIENTS,
        backlog: 0,
        ..plan
    };
    let publishes = load(publishing, tell).await?;

    let mut homes = Homes::create(server)?;
    let to = homes.join("recipient")?;
    homes.join("sender")?;
    let daemon = homes.start("sender", &to, None).await?;
    let idle_bytes = consign_bench::idle_bytes(&daemon.target).await?;
    tell("sending to the daemon");
    let elapsed = MeshSendUntil::Elapsed(round);
    let send = |target: MeshBenchTarget, until| async move {
        consign_bench::send_messages(&target, CLIENTS, body_bytes, until).await
    };
    let sends = send(daemon.target.clone(), elapsed).await?;
    consign_bench::drained(&daemon.target, DRAIN_LIMIT).await?;

    let flow = (backlog * FLOW_PERCENT / 100).max(1);
    tell(&format!("delivering {flow} messages from an empty outbox"));
    let began = Instant::now();
    send(daemon.target.clone(), MeshSendUntil::Accepted(flow)).await?;
    consign_bench::drained(&daemon.target, DRAIN_LIMIT).await?;
    let flow_per_s = rate(flow, began);
    drop(daemon);

    tell(&format!("storing {backlog} messages without a broker"));
    let apart = homes.start("sender", &to, Some(NO_BROKER)).await?;
    send(apart.target.clone(), MeshSendUntil::Accepted(backlog)).await?;
    drop(apart);
    tell("delivering them");
    let daemon = homes.start("sender", &to, None).await?;
    let began = Instant::now();
    consign_bench::drained(&daemon.target, DRAIN_LIMIT).await?;
    let drained_per_s = rate(backlog, began);
    Ok(MeshBenchReport {
        work,
        ratio: sends.per_s / publishes.requests_per_s.median,
        drain_ratio: drained_per_s / flow_per_s,
        idle_bytes,
        backlog,
        drained_per_s,
        flow_per_s,
        sends,
        stolen_share: publishes.usage.stolen_share,
        publishes,
    })
}

pub(super) fn table(report: &MeshBenchReport) -> String {
    let MeshBenchReport {
        ratio,
        drain_ratio,
        idle_bytes,
        backlog,
        drained_per_s,
        flow_per_s,
        sends,
        ..
    } = report;
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let megabytes = *idle_bytes as f64 / 1e6;
    format!(
        "{}\n{:<15}{:.0} messages a second from {} clients, p50 {} us, p99 {} us\n{:<15}{ratio:.2} messages a publish\n\
         {:<15}{drained_per_s:.0} a second, a backlog of {backlog}\n{:<15}{flow_per_s:.0} a second, from an empty outbox\n\
         {:<15}{drain_ratio:.2}\n{:<15}{megabytes:.1} MB, idle\n",
        consign_bench::table(&report.publishes),
        "accepted",
        sends.per_s,
        sends.clients,
        sends.p50_us,
        sends.p99_us,
        "ratio",
        "drained",
        "delivered",
        "drain ratio",
        "memory",
    )
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rate(count: u64, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

/// The home folders of the members, below the directory of the private server.
struct Homes {
    program: PathBuf,
    data: PathBuf,
    folder: PathBuf,
}

impl Homes {
    /// Creates the mesh.
    fn create(server: &PrivateServer) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let data = server.data_root();
        let homes = Self {
            program,
            folder: data.with_file_name("homes"),
            data,
        };
        homes.operate(&["mesh", "create", MESH])?;
        Ok(homes)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn operate(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = unconfigured(&self.program);
        command
            .args(words)
            .arg("--json")
            .arg("--data")
            .arg(&self.data);
        output(&mut command)
    }

    /// A new member; returns its key.
    fn join(&mut self, name: &str) -> anyhow::Result<String> {
        let invite = self.operate(&["mesh", "invite", MESH])?;
        let token = text(&invite, "token")?;
        let home = self.home(name);
        fs::create_dir_all(&home)?;
        let mut command = unconfigured(&self.program);
        command.env("HOME", &home);
        command.args(["mesh", "join", &token, "--name", name, "--json"]);
        text(&output(&mut command)?, "pubkey")
    }

    /// Starts a member's daemon and waits until it listens, and is connected if it has a broker.
    async fn start(
        &self,
        name: &str,
        to: &str,
        broker: Option<&str>,
    ) -> anyhow::Result<RunningDaemon> {
        let home = self.home(name);
        let folder = home.join(".claudemesh/daemon").join(MESH);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("config.toml"), SETTINGS)?;
        let log = home.join("daemon.stderr");
        let mut command = unconfigured(&self.program);
        command
            .env("HOME", &home)
            .args([
                "daemon",
                "up",
                "--foreground",
                "--persistent",
                "--mesh",
                MESH,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        if let Some(broker) = broker {
            command.env("CLAUDEMESH_BROKER_URL", broker);
        }
        let child = command.spawn().context("cannot start a daemon")?;
        let target = MeshBenchTarget {
            socket: folder.join("sock"),
            pid: child.id(),
            to: to.to_owned(),
        };
        let mut daemon = RunningDaemon { child, target };
        daemon.ready(broker.is_none(), &log).await?;
        Ok(daemon)
    }
}

/// Killed when it is dropped: its outbox is kept.
struct RunningDaemon {
    child: Child,
    target: MeshBenchTarget,
}

impl RunningDaemon {
    async fn ready(&mut self, connected: bool, log: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            if consign_bench::is_ready(&self.target, connected).await {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let text = fs::read_to_string(log).unwrap_or_default();
                return Err(anyhow!("the daemon ended with {status}: {}", text.trim()));
            }
            if Instant::now() > deadline {
                bail!("the daemon is not ready after {READY_LIMIT:?}");
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output(command: &mut std::process::Command) -> anyhow::Result<Value> {
    let output = command.output().context("cannot start this program")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", text.trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    let text = value[name].as_str();
    text.map(str::to_owned)
        .with_context(|| format!("there is no {name} in {value}"))
}
