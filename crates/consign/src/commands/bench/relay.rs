//! `consign bench --work relay`, `relay-socket` and `idle-sockets`: signed intents of Beam compared with whole cycles on
//! the same server, and the memory of sockets that do nothing.
//!
//! Invariant: every intent is signed before the measurement, so that the generator does not sign while it measures.
//! Running out of signed intents is an error.

use anyhow::Context as _;
use consign_bench::{
    BenchPlan, BenchReport, IdleSocketsReport, RelayOrders, SenderOrders, Workload,
};
use serde::Serialize;

use super::beam_agents::{self, AgentFactory, RelayAgent};
use super::load;
use super::private_server::PrivateServer;

/// Agents that answer. Senders are spread over them.
const RECIPIENTS: usize = 8;
/// Intents are expected to stay below this share of the cycles.
const INTENTS_PER_CYCLE: f64 = 2.0;
/// For each sender, for the time around the rounds, in which clients run too.
const FRAMES_MIN: usize = 200;
const IDLE_AGENTS: usize = 1_000;
const IDLE_FEEDS: usize = 1_000;

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct RelayReport {
    work: Workload,
    /// Relayed intents for each cycle.
    ratio: f64,
    /// Of the time from an intent to its result.
    p99_per_p50: Option<f64>,
    /// The larger value of the two runs.
    stolen_share: Option<f64>,
    pub(super) intents: BenchReport,
    pub(super) cycles: BenchReport,
}

/// Cycles first, because they tell how many intents must be signed.
pub(super) async fn measure(
    plan: BenchPlan,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<RelayReport> {
    let cycling = BenchPlan {
        work: Workload::Cycle,
        ..plan.clone()
    };
    let cycles = load(cycling, tell).await?;
    let enough = cycles.cycles_per_s.max * plan.length().as_secs_f64() * INTENTS_PER_CYCLE;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate times a few minutes"
    )]
    let each = enough as usize / plan.clients + FRAMES_MIN;
    let relaying = BenchPlan {
        relay: orders(&plan, each, tell).await?.into(),
        // They are stored already.
        backlog: 0,
        finished: 0,
        ..plan
    };
    let work = relaying.work;
    let intents = load(relaying, tell).await?;
    let stolen = [&intents, &cycles].map(|report| report.usage.stolen_share);
    let times = intents.operations.iter();
    let times = times.filter(|operation| operation.name == "relay");
    Ok(RelayReport {
        work,
        ratio: intents.cycles_per_s.median / cycles.cycles_per_s.median,
        p99_per_p50: times.map(|times| times.p99_us / times.p50_us).next(),
        stolen_share: stolen.into_iter().flatten().reduce(f64::max),
        intents,
        cycles,
    })
}

/// Registers the agents and signs what they send.
async fn orders(
    plan: &BenchPlan,
    each: usize,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<RelayOrders> {
    let server = plan.target.server.to_string();
    let factory = AgentFactory::new()?;
    let senders = factory.agents("sender", plan.clients)?;
    let recipients = factory.agents("recipient", RECIPIENTS.min(plan.clients))?;
    tell("registering agents");
    beam_agents::register(&server, &senders).await?;
    beam_agents::register(&server, &recipients).await?;
    beam_agents::accept_all(&server, &recipients).await?;
    tell(&format!("signing {} intents", each * senders.len()));
    let orders = senders.iter().enumerate().map(|(index, sender)| {
        let to = &recipients[index % recipients.len()];
        SenderOrders {
            beam_id: sender.beam_id().to_owned(),
            frames: sender.frames(to, each, plan.payload_bytes),
        }
    });
    Ok(RelayOrders {
        senders: orders.collect(),
        recipients: ids(&recipients),
    })
}

pub(super) fn table(report: &RelayReport) -> String {
    let times = report.p99_per_p50.map_or_else(String::new, |times| {
        format!("{:<15}{times:.1} times the p50\n", "p99")
    });
    format!(
        "{}\n{}\n{:<15}{:.2} intents a cycle\n{times}",
        consign_bench::table(&report.cycles),
        consign_bench::table(&report.intents),
        "ratio",
        report.ratio,
    )
}

/// Registers agents, starts the server again, so that nothing of that is in its memory, and connects them.
pub(super) async fn idle(
    server: &mut PrivateServer,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<IdleSocketsReport> {
    let agents = AgentFactory::new()?.agents("idle", IDLE_AGENTS)?;
    tell("registering agents");
    let target = server.target()?;
    beam_agents::register(&target.server.to_string(), &agents).await?;
    server.restart().await?;
    tell("opening sockets");
    let report = consign_bench::idle_sockets(&server.target()?, &ids(&agents), IDLE_FEEDS).await;
    report.context("the memory of idle sockets was not measured")
}

pub(super) fn idle_table(report: &IdleSocketsReport) -> String {
    let IdleSocketsReport {
        agents,
        feeds,
        rss_before_bytes,
        rss_after_bytes,
        bytes_per_socket,
    } = report;
    format!(
        "{:<15}{agents} agents, {feeds} feeds\n{:<15}{rss_before_bytes} bytes before, {rss_after_bytes} with the sockets\n\
         {:<15}{bytes_per_socket:.0} bytes\n",
        "sockets", "memory", "each"
    )
}

fn ids(agents: &[RelayAgent]) -> Vec<String> {
    let ids = agents.iter().map(RelayAgent::beam_id);
    ids.map(str::to_owned).collect()
}
