//! Claims intents for the free slots, runs them, and reports their ends.
//!
//! Invariant: at most one claim and one report are under way. A report claims for the slots that it frees, so a busy worker
//! sends one request for each end; a claim of its own waits at the server for the slots that are idle. What a request may still
//! return counts as running, so no intent is claimed without a slot.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use consign_client::retry::{self, AttemptOutcome, RetryDecision};
use consign_client::{
    ClaimFilter, ClaimNext, ClaimSettlement, Claimed, Client, Error, ItemOutcome, NextAttempt,
    SettleResponse,
};
use consign_kernel::limits::CLAIM_BATCH_MAX;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::attempt::{self, AttemptVerdict, EndedAttempt};
use super::{StopPhase, WorkerSettings, report};
use crate::failure::{Exit, Failure};
use crate::out;

/// The server holds a claim open this long at most.
const WAIT_S: u64 = 30;

/// A claim that was to wait and came back sooner than this is not repeated at once.
const EMPTY_MIN: Duration = Duration::from_secs(1);

/// Ends that are reported together. Their texts fit into one request.
const REPORT_MAX: usize = 16;

/// How long the last ends are reported to a server that does not answer.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// For the retries of a request that has no end of its own.
const NEVER: Duration = Duration::from_hours(24);

/// What one of the tasks did.
enum PoolEvent {
    Ended(Box<EndedAttempt>),
    Claimed {
        asked_at: Instant,
        reply: Result<Vec<Claimed>, Error>,
    },
    Reported {
        batch: Vec<EndedAttempt>,
        claims: u32,
        reply: Result<SettleResponse, Error>,
    },
}

struct OpenClaim {
    /// As many slots are taken while it waits.
    max: u32,
    task: AbortHandle,
}

pub(crate) struct WorkerPool {
    client: Arc<Client>,
    settings: Arc<WorkerSettings>,
    phase: watch::Sender<StopPhase>,
    tasks: JoinSet<PoolEvent>,
    running: u32,
    claim: Option<OpenClaim>,
    /// The report under way may claim so many.
    report_claims: Option<u32>,
    /// Ends that are not reported yet.
    ended: Vec<EndedAttempt>,
    /// No request is sent before this.
    paused_until: Option<Instant>,
    /// Requests that failed in a row.
    failures: u32,
    /// When the next phase of the end begins by itself.
    next_phase_at: Option<Instant>,
    /// Why the worker stops although nobody asked it to.
    fatal: Option<anyhow::Error>,
    /// With `once`: whether an intent was claimed, and how it ended.
    once_claimed: bool,
    has_failed: bool,
}

impl WorkerPool {
    pub(crate) fn new(client: Client, settings: WorkerSettings) -> Self {
        Self {
            client: Arc::new(client),
            settings: Arc::new(settings),
            phase: watch::Sender::new(StopPhase::Working),
            tasks: JoinSet::new(),
            running: 0,
            claim: None,
            report_claims: None,
            ended: Vec::new(),
            paused_until: None,
            failures: 0,
            next_phase_at: None,
            fatal: None,
            once_claimed: false,
            has_failed: false,
        }
    }

    pub(crate) async fn run(mut self) -> anyhow::Result<Exit> {
        let mut signals = StopSignals::listen()?;
        loop {
            self.report();
            self.claim();
            if self.is_over() {
                break;
            }
            let (pause, next_phase) = (self.paused_until, self.next_phase_at);
            tokio::select! {
                biased;
                () = signals.next() => self.stop_sooner(),
                () = sleep_until(next_phase.unwrap_or_else(Instant::now)), if next_phase.is_some() => {
                    self.next_phase();
                }
                Some(event) = self.tasks.join_next(), if !self.tasks.is_empty() => match event {
                    Ok(event) => self.handle(event)?,
                    // The claim that the end of the worker cancelled.
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => return Err(anyhow::Error::new(error).context("a task of the worker failed")),
                },
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {
                    self.paused_until = None;
                }
            }
        }
        self.exit()
    }

    fn exit(self) -> anyhow::Result<Exit> {
        for lost in &self.ended {
            out::note(&format!(
                "{}: its end could not be reported; it is handed out again when its lease ends",
                lost.claimed.id
            ));
        }
        if let Some(error) = self.fatal {
            return Err(error);
        }
        if !self.ended.is_empty() {
            return Ok(Exit::Unreachable);
        }
        if !self.settings.once {
            return Ok(Exit::Done);
        }
        if !self.once_claimed {
            out::note("nothing to claim");
            return Ok(Exit::Nothing);
        }
        Ok(if self.has_failed {
            Exit::Failed
        } else {
            Exit::Done
        })
    }

    /// Whether there is nothing left to wait for.
    fn is_over(&self) -> bool {
        let gave_up = self.phase() == StopPhase::Killing && self.next_phase_at.is_none();
        let waits = !self.ended.is_empty() || self.report_claims.is_some();
        let done = self.is_stopping() || self.settings.once && self.once_claimed;
        done && self.running == 0 && (gave_up || !waits)
    }

    fn phase(&self) -> StopPhase {
        *self.phase.borrow()
    }

    fn is_stopping(&self) -> bool {
        self.phase() > StopPhase::Working
    }

    /// How many more intents may be claimed.
    fn free(&self) -> u32 {
        let expected = self.claim.as_ref().map_or(0, |claim| claim.max);
        let reported = self.report_claims.unwrap_or(0);
        let free = self
            .settings
            .concurrency
            .saturating_sub(self.running + expected + reported);
        let is_last = self.settings.once && self.once_claimed;
        if self.is_stopping() || is_last {
            return 0;
        }
        free.min(CLAIM_BATCH_MAX)
    }

    /// Reports what has ended and claims the next in the same request.
    fn report(&mut self) {
        if self.ended.is_empty() || self.report_claims.is_some() || self.paused_until.is_some() {
            return;
        }
        let count = self.ended.len().min(REPORT_MAX);
        let batch: Vec<EndedAttempt> = self.ended.drain(..count).collect();
        let claims = self.free();
        self.report_claims = Some(claims);
        let (client, settings) = (Arc::clone(&self.client), Arc::clone(&self.settings));
        self.tasks.spawn(async move {
            let items: Vec<ClaimSettlement> = batch.iter().filter_map(settlement).collect();
            let next = (claims > 0).then(|| next_claim(&settings, claims));
            let reply = client.settle(&items, next.as_ref()).await;
            PoolEvent::Reported {
                batch,
                claims,
                reply,
            }
        });
    }

    /// Claims for the idle slots; the server answers as soon as there is work.
    fn claim(&mut self) {
        let free = self.free();
        let report_comes = !self.ended.is_empty() || self.report_claims.is_some();
        if free == 0 || self.claim.is_some() || report_comes || self.paused_until.is_some() {
            return;
        }
        let filter = ClaimFilter {
            goal: Some(self.settings.goal.clone()),
            namespace: self.settings.namespace.clone(),
            publisher: None,
            worker_id: Some(self.settings.worker_id.clone()),
            capabilities: self.settings.capabilities.clone(),
            wait_s: (!self.settings.once).then_some(WAIT_S),
            max: Some(free),
        };
        let client = Arc::clone(&self.client);
        let asked_at = Instant::now();
        let task = self.tasks.spawn(async move {
            let reply = client.claim(&filter).await;
            PoolEvent::Claimed { asked_at, reply }
        });
        self.claim = Some(OpenClaim { max: free, task });
    }

    fn handle(&mut self, event: PoolEvent) -> anyhow::Result<()> {
        match event {
            PoolEvent::Ended(finished) => self.attempt_ended(*finished),
            PoolEvent::Claimed { asked_at, reply } => {
                self.claim = None;
                match reply {
                    Ok(claimed) => self.claimed(claimed, asked_at),
                    Err(error) => self.failed(error),
                }
                Ok(())
            }
            PoolEvent::Reported {
                batch,
                claims,
                reply,
            } => {
                self.report_claims = None;
                self.reported(batch, claims, reply)
            }
        }
    }

    fn claimed(&mut self, claimed: Vec<Claimed>, asked_at: Instant) {
        self.reached();
        if claimed.is_empty() {
            if self.settings.once {
                self.stop();
            } else if asked_at.elapsed() < EMPTY_MIN {
                self.paused_until = Some(asked_at + EMPTY_MIN);
            }
        }
        self.begin(claimed);
    }

    fn begin(&mut self, claimed: Vec<Claimed>) {
        for claimed in claimed {
            self.once_claimed = true;
            // The claim was under way when the worker was stopped.
            if self.is_stopping() {
                self.ended.push(EndedAttempt::not_begun(claimed));
                continue;
            }
            self.running += 1;
            let attempt = attempt::run(
                claimed,
                Arc::clone(&self.settings),
                Arc::clone(&self.client),
                self.phase.subscribe(),
            );
            self.tasks
                .spawn(async move { PoolEvent::Ended(Box::new(attempt.await)) });
        }
    }

    fn attempt_ended(&mut self, finished: EndedAttempt) -> anyhow::Result<()> {
        self.running -= 1;
        if let Some(why) = &finished.unusable
            && self.fatal.is_none()
        {
            self.fatal = Some(Failure::failed(why.clone()).into());
            self.stop();
        }
        if settlement(&finished).is_none() {
            return self.print(&finished);
        }
        self.ended.push(finished);
        Ok(())
    }

    fn reported(
        &mut self,
        batch: Vec<EndedAttempt>,
        claims: u32,
        reply: Result<SettleResponse, Error>,
    ) -> anyhow::Result<()> {
        match reply {
            Ok(response) => {
                self.reached();
                for (finished, outcome) in batch.into_iter().zip(response.items) {
                    self.answered(finished, &outcome)?;
                }
                self.begin(response.intents);
            }
            Err(error) if is_final(&error) && claims == 0 => {
                // The ends cannot be reported at all, so their leases end by themselves.
                for finished in &batch {
                    out::note(&format!(
                        "{}: its end was refused: {error}",
                        finished.claimed.id
                    ));
                }
                self.failed(error);
            }
            Err(error) => {
                self.ended.splice(0..0, batch);
                self.failed(error);
            }
        }
        Ok(())
    }

    /// The server's answer about one end.
    fn answered(
        &mut self,
        mut finished: EndedAttempt,
        outcome: &ItemOutcome,
    ) -> anyhow::Result<()> {
        let Some(refusal) = outcome.error.as_ref().filter(|_| !outcome.ok) else {
            return self.print(&finished);
        };
        let why = format!("{} ({})", refusal.message, refusal.code);
        let is_failure = matches!(finished.verdict, AttemptVerdict::Failed { .. });
        if refusal.code == "not_found" {
            finished.verdict = AttemptVerdict::LeaseLost(
                "the end came too late: the lease was over, or the end was reported before"
                    .to_owned(),
            );
        } else if is_failure {
            finished.verdict = AttemptVerdict::LeaseLost(format!("the end was refused: {why}"));
        } else {
            // The intent is not left to wait for the end of its lease.
            finished.verdict = AttemptVerdict::Failed {
                error: format!("the command succeeded, but its result was refused: {why}"),
                next: NextAttempt::Never,
            };
            self.ended.push(finished);
            return Ok(());
        }
        self.print(&finished)
    }

    fn print(&mut self, finished: &EndedAttempt) -> anyhow::Result<()> {
        self.has_failed |= !matches!(finished.verdict, AttemptVerdict::Succeeded(_));
        let EndedAttempt {
            claimed,
            verdict,
            elapsed,
            ..
        } = finished;
        report::ended(self.settings.json, claimed, verdict, *elapsed)
    }

    fn reached(&mut self) {
        if self.failures > 0 {
            out::note("the server answers again");
        }
        self.failures = 0;
    }

    /// A request failed: the worker waits, or stops if every further request would fail as well.
    fn failed(&mut self, error: Error) {
        if is_final(&error) || self.settings.once && !self.once_claimed {
            self.fatal.get_or_insert(error.into());
            self.stop();
            return;
        }
        if self.settings.once {
            // The end is reported for as long as running commands may go on, and not for ever.
            self.stop();
        }
        let pause = pause(&error, self.failures);
        if self.failures == 0 {
            out::note(&format!("{error}; the worker goes on trying"));
        }
        self.failures = self.failures.saturating_add(1);
        self.paused_until = Some(Instant::now() + pause);
    }

    /// No new claims. A claim that waits at the server is given up.
    fn stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        if let Some(claim) = self.claim.take() {
            claim.task.abort();
        }
        self.enter(StopPhase::Draining, self.settings.grace);
    }

    fn stop_sooner(&mut self) {
        if self.is_stopping() {
            self.enter(StopPhase::Killing, LAST_REPORTS);
            return;
        }
        if self.running > 0 {
            out::note(&format!(
                "stopping: waiting for {} running commands, at most {:?}; a second signal ends them at once",
                self.running, self.settings.grace
            ));
        }
        self.stop();
    }

    fn next_phase(&mut self) {
        match self.phase() {
            StopPhase::Working | StopPhase::Draining => {
                self.enter(StopPhase::Terminating, attempt::KILL_PAUSE);
            }
            StopPhase::Terminating => self.enter(StopPhase::Killing, LAST_REPORTS),
            StopPhase::Killing => self.next_phase_at = None,
        }
    }

    fn enter(&mut self, phase: StopPhase, lasts: Duration) {
        self.phase.send_replace(phase);
        self.next_phase_at = Some(Instant::now() + lasts);
    }
}

/// SIGINT and SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// `None` if nothing may be reported.
fn settlement(finished: &EndedAttempt) -> Option<ClaimSettlement> {
    let (id, claim_token) = (
        finished.claimed.id.clone(),
        finished.claimed.claim_token.clone(),
    );
    match &finished.verdict {
        AttemptVerdict::Succeeded(output) => Some(ClaimSettlement::Fulfil {
            id,
            claim_token,
            output: output.clone(),
        }),
        AttemptVerdict::Failed { error, next } => Some(ClaimSettlement::Fail {
            id,
            claim_token,
            error: error.clone(),
            next: *next,
        }),
        AttemptVerdict::LeaseLost(_) => None,
    }
}

fn next_claim(settings: &WorkerSettings, max: u32) -> ClaimNext {
    ClaimNext {
        max: Some(max),
        goal: Some(settings.goal.clone()),
        namespace: settings.namespace.clone(),
        worker_id: Some(settings.worker_id.clone()),
        capabilities: settings.capabilities.clone(),
    }
}

/// Whether every further request would get the same answer.
fn is_final(error: &Error) -> bool {
    let decision = decide(error, 0, 0);
    decision == RetryDecision::Final
}

/// How long the worker waits after so many failures.
fn pause(error: &Error, failures: u32) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    match decide(error, failures, random) {
        RetryDecision::Wait(wait) => wait,
        RetryDecision::Final | RetryDecision::TooLate => EMPTY_MIN,
    }
}

fn decide(error: &Error, failures: u32, random: u32) -> RetryDecision {
    let outcome = if let Error::Refused {
        status,
        retry_after_s,
        ..
    } = error
    {
        AttemptOutcome::Status {
            code: status.as_u16(),
            retry_after: retry_after_s.map(Duration::from_secs),
        }
    } else if error.is_unreachable() {
        AttemptOutcome::Nothing
    } else {
        return RetryDecision::Final;
    };
    let now = SystemTime::now();
    retry::next(failures, outcome, now, now + NEVER, random)
}
