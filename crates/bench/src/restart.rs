//! How soon a killed server works again: load it, kill it, start it, claim.
//!
//! Invariant: a round counts only if the claim returned an intent that was published before the
//! kill, so a server that answers without data is no success. The caller kills and starts the
//! server; this module sends requests and measures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::connection::BenchConnection;
use crate::load;
use crate::plan::{BenchPlan, BenchTarget, Workload};
use crate::report::{RoundSpread, ServerReport, server};
use crate::request::{ClaimOptions, RequestWriter, random_word};
use crate::response::leases;
use crate::run::{resolve, rss_start};
use crate::usage::{self, Ticks};

/// A server that was killed and started again.
#[derive(Debug)]
pub struct RestartSample {
    pub target: BenchTarget,
    /// When its program was executed.
    pub began: Instant,
}

/// The results of the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct RestartReport {
    pub consign_version: &'static str,
    pub work: Workload,
    pub payload_bytes: usize,
    pub backlog: u64,
    pub finished: u64,
    pub signed: bool,
    pub nonces: u64,
    /// After loading, before the first kill.
    pub server: ServerReport,
    /// From the start of the program to the answer, for each round.
    pub first_claim_ms: Vec<f64>,
    pub p50_ms: f64,
    pub max_ms: f64,
    /// After the last round.
    pub rss_restarted_bytes: Option<u64>,
    /// Over all rounds, without the loading.
    pub stolen_share: Option<f64>,
}

/// Executes the plan; `restart` kills the server and starts it on the same data.
pub async fn restarts<E: From<Error>>(
    plan: BenchPlan,
    mut restart: impl AsyncFnMut() -> Result<RestartSample, E>,
    progress: &mut dyn FnMut(&str),
) -> Result<RestartReport, E> {
    let mut plan = Arc::new(plan);
    let rss_start_bytes = rss_start(&plan.target).await;
    let goal: Arc<str> = format!("run-{}", random_word()?).into();
    let address = resolve(&plan.target.server).await?;
    load::load(&plan, address, &goal, progress).await?;
    let server = server(&plan.target, rss_start_bytes);
    let before = Ticks::read();
    let mut first_claim_ms = Vec::with_capacity(plan.rounds);
    for round in 1..=plan.rounds {
        let started = restart().await?;
        Arc::make_mut(&mut plan).target = started.target;
        claim(&plan, &goal, round).await?;
        first_claim_ms.push(started.began.elapsed().as_secs_f64() * 1e3);
    }
    let stolen = before.zip(Ticks::read());
    let spread = RoundSpread::of(first_claim_ms.clone());
    let memory = plan.target.pid.and_then(usage::memory);
    Ok(RestartReport {
        consign_version: env!("CARGO_PKG_VERSION"),
        work: plan.work,
        payload_bytes: plan.payload_bytes,
        backlog: plan.backlog,
        finished: plan.finished,
        signed: plan.signed,
        nonces: plan.nonces,
        server,
        first_claim_ms,
        p50_ms: spread.median,
        max_ms: spread.max,
        rss_restarted_bytes: memory.map(|(now, _)| now),
        stolen_share: stolen.and_then(|(first, last)| first.stolen_until(last)),
    })
}

async fn claim(plan: &BenchPlan, goal: &str, round: usize) -> Result<(), Error> {
    let address = resolve(&plan.target.server).await?;
    let connection = BenchConnection::open(address).await;
    let mut connection = connection.map_err(|source| Error::Connect {
        server: plan.target.server.to_string(),
        source,
    })?;
    let claiming = ClaimOptions {
        max: None,
        wait: Duration::ZERO,
    };
    let mut writer = RequestWriter::new(plan, goal, claiming, &format!("restart-{round}"))?;
    let mut request = Vec::new();
    writer.claim(&mut request);
    let status = connection.exchange(&request).await;
    let status = status.map_err(|error| Error::Restart(error.to_string()))?;
    if status == 200 && leases(connection.body()).next().is_some() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(connection.body());
    Err(Error::Restart(format!("status {status}: {body}")))
}
