//! One simulation: a seed determines its steps, and every step is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Token};
use consign_store::Dump;
use consign_store::memory::simulated::{DiskFault, Turn};
use consign_testkit::seeded_random::SeededRandom;

use crate::client_checks::ClientChecks;
use crate::clocks::PaceCheck;
use crate::describe::{answer, kind, told};
use crate::ledger_checks::{BrokenPromise, LedgerChecks};
use crate::log::EventLog;
use crate::machine::SimMachine;
use crate::requests::{
    LEASE_MIN_US, PresentedToken, PublishBatch, PublishSpec, SimAction, SimRequest, claim,
};
use crate::wake_checks::WakeChecks;

const REQUESTS_AT_ONCE_MAX: usize = 12;
const GOALS: [&str; 2] = ["a", "b"];
/// The minimum duration of a commit.
const TICK: Duration = Duration::from_millis(1);
/// Longer than any wait may take, in commits.
const REST_TURNS: u32 = 125;
const REST_TICK: Duration = Duration::from_millis(20);

/// A broken promise, and the steps before it.
#[derive(Debug)]
pub(crate) struct SeedFailure {
    pub(crate) step: u64,
    pub(crate) broken: BrokenPromise,
    pub(crate) tail: Vec<String>,
}

/// The result of a simulation without a violation.
#[derive(Debug)]
pub(crate) struct SeedResult {
    pub(crate) digest: u64,
    pub(crate) counts: EventCounts,
}

/// The number of events by kind.
pub(crate) type EventCounts = BTreeMap<&'static str, u64>;

/// Runs one seed.
pub(crate) fn run(seed: u64, steps: u64) -> Result<SeedResult, SeedFailure> {
    simulated_runtime().block_on(async {
        let mut run = Simulation::new(seed);
        for step in 1..=steps {
            if let Err(broken) = run.step().await {
                let tail = run.log.tail();
                return Err(SeedFailure { step, broken, tail });
            }
        }
        Ok(SeedResult {
            digest: run.log.digest(),
            counts: run.counts,
        })
    })
}

/// One thread, whose clock advances only when all tasks wait.
pub(crate) fn simulated_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing from the system")
}

struct Simulation {
    random: SeededRandom,
    world: SimMachine,
    requests: Vec<SimRequest>,
    sent: u64,
    /// A connection was cut, and nothing else happens: a lost wake would show.
    quiet: bool,
    published: Vec<PublishBatch>,
    /// The number of intents so far.
    keys: usize,
    pace_check: PaceCheck,
    client_checks: ClientChecks,
    ledger: LedgerChecks,
    wakes: WakeChecks,
    log: EventLog,
    counts: EventCounts,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds start with very different states.
        let far = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        let mut random = SeededRandom::new(far);
        // A short queue is full now and then.
        let requests_max = random.one_of(&[6, 1_000]);
        Self {
            random,
            world: SimMachine::boot(seed, requests_max),
            requests: Vec::new(),
            sent: 0,
            quiet: false,
            published: Vec::new(),
            keys: 0,
            pace_check: PaceCheck::default(),
            client_checks: ClientChecks::default(),
            ledger: LedgerChecks::default(),
            wakes: WakeChecks::default(),
            log: EventLog::default(),
            counts: EventCounts::new(),
        }
    }

    async fn step(&mut self) -> Result<(), BrokenPromise> {
        match self.random.below(100) {
            _ if std::mem::take(&mut self.quiet) => self.rest().await?,
            0..8 => self.rest().await?,
            8..12 => self.sleep(),
            12..16 => self.set_wall(),
            _ => {
                for _ in 0..=self.random.below(3) {
                    self.ask();
                }
                if self.random.percent(15) {
                    self.cut();
                }
                // Requests reach the queue, or are dropped.
                self.world.pass(TICK).await;
                if self.random.percent(70) {
                    let fault = self.fault();
                    self.turn(fault).await?;
                }
            }
        }
        self.world.pass(TICK).await;
        self.judge().await
    }

    fn fault(&mut self) -> DiskFault {
        match self.random.below(100) {
            0..4 => DiskFault::Refused,
            4..7 => DiskFault::CrashBefore,
            7..10 => DiskFault::CrashAfter,
            10 => DiskFault::Lost,
            11 => DiskFault::Gone,
            12..27 => DiskFault::Slow,
            _ => DiskFault::None,
        }
    }

    async fn turn(&mut self, fault: DiskFault) -> Result<(), BrokenPromise> {
        let turn = self.world.turn(fault);
        match turn {
            Turn::Idle => {}
            Turn::Slow => self.count("slow commits"),
            Turn::Committed => {
                if self.random.percent(15) {
                    // The response is in transit, and its client is gone.
                    self.cut();
                }
            }
            Turn::Failed if fault == DiskFault::None => {
                return Err("a commit failed although the disk is fine".to_owned());
            }
            Turn::Failed => {
                self.count("refused commits");
                self.note("the disk refuses");
            }
            Turn::Crashed => {
                self.count(match fault {
                    DiskFault::CrashAfter => "crashes after a commit",
                    DiskFault::Lost | DiskFault::Gone => "failed syncs",
                    DiskFault::None
                    | DiskFault::Refused
                    | DiskFault::Slow
                    | DiskFault::CrashBefore => "crashes before a commit",
                });
                self.note(&format!("the machine dies: {fault:?}"));
                // Responses that were sent before the crash still arrive.
                self.world.pass(TICK).await;
                for request in &self.requests {
                    request.task.abort();
                }
                self.world.restart();
            }
        }
        Ok(())
    }

    /// No new requests and no faults: every waiting claim must get an available intent.
    async fn rest(&mut self) -> Result<(), BrokenPromise> {
        self.note("rest");
        for _ in 0..REST_TURNS {
            self.world.pass(REST_TICK).await;
            match self.world.turn(DiskFault::None) {
                Turn::Idle => {}
                Turn::Failed => {
                    return Err("a commit failed although the disk is fine".to_owned());
                }
                // The next commit may clean up what is visible now.
                Turn::Committed | Turn::Slow | Turn::Crashed => drop(self.look().await?),
            }
        }
        Ok(())
    }

    /// Leases expire meanwhile.
    fn sleep(&mut self) {
        let us = match self.random.below(20) {
            0 => 8 * DAY_US,
            _ => self.random.one_of(&[1, 3, 11, 61]) * SECOND_US,
        };
        self.note(&format!("the machine sleeps for {} s", us / SECOND_US));
        self.world.sleep(us);
    }

    /// Leases must not be affected.
    fn set_wall(&mut self) {
        let by_s = self.random.one_of(&[1, 5, 61, 3_600]);
        let (count, by_s) = if self.random.percent(60) {
            ("wall clock set back", -by_s)
        } else {
            ("wall clock set ahead", by_s)
        };
        self.count(count);
        self.note(&format!("the wall clock is set by {by_s} s"));
        self.world.set_wall(by_s * SECOND_US);
    }

    /// Cuts the connection of a waiting client.
    fn cut(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let chosen = self.random.index(self.requests.len());
        let number = self.requests[chosen].number;
        self.requests[chosen].task.abort();
        self.quiet = self.random.percent(30);
        self.note(&format!("#{number} is cut off"));
    }

    /// Sends one more request.
    fn ask(&mut self) {
        if self.requests.len() >= REQUESTS_AT_ONCE_MAX {
            return;
        }
        let Some(action) = self.choose() else { return };
        self.sent += 1;
        let request = SimRequest::send(self.sent, action, &self.world.engine);
        self.client_checks.sent(&request.action, request.sent);
        self.note(&format!("#{} {}", request.number, told(&request.action)));
        self.requests.push(request);
    }

    fn choose(&mut self) -> Option<SimAction> {
        match self.random.below(106) {
            0..28 => Some(SimAction::Publish(self.batch())),
            28..40 => Some(self.claim(Duration::ZERO)),
            40..58 => {
                let wait_s = self.random.one_of(&[4, 30]);
                Some(self.claim(Duration::from_secs(wait_s)))
            }
            58..76 => self.presented().map(SimAction::Complete),
            76..84 => self.presented().map(SimAction::Fail),
            84..92 => {
                let presented = self.presented()?;
                let lease = &self.client_checks.leases[presented.lease];
                let alone = !lease.is_extending() && lease.token == presented.token;
                let lease_us = self.lease_us();
                alone.then_some(SimAction::Extend {
                    presented,
                    lease_us,
                })
            }
            92..98 => {
                let id = self.in_an_operator_s_way()?;
                let cancels = self.random.percent(40);
                Some(if cancels {
                    SimAction::Cancel(id)
                } else {
                    SimAction::Requeue(id)
                })
            }
            98..100 => Some(SimAction::Clean),
            _ => {
                let id = self.worth_a_receipt()?;
                let settled = self.ledger.settled_by(id);
                let between_ms = self.random.one_of(&[1, 30]);
                Some(SimAction::Receipt {
                    id,
                    settled,
                    between_reads: Duration::from_millis(between_ms),
                })
            }
        }
    }

    /// Any intent, but often one whose receipt is being created.
    fn in_an_operator_s_way(&mut self) -> Option<IntentId> {
        let receipts = self.requests.iter().filter_map(SimRequest::receipt_of);
        let mut ids: Vec<IntentId> = receipts.collect();
        if ids.is_empty() || self.random.percent(50) {
            ids = self.ledger.ids();
        }
        ids.get(self.random.index(ids.len())).copied()
    }

    /// Mostly an intent whose settlement was acknowledged.
    fn worth_a_receipt(&mut self) -> Option<IntentId> {
        let mut ids: Vec<IntentId> = self.client_checks.told_settled().collect();
        if ids.is_empty() || self.random.percent(20) {
            ids = self.ledger.ids();
        }
        ids.get(self.random.index(ids.len())).copied()
    }

    fn batch(&mut self) -> PublishBatch {
        let again = self.random.percent(30);
        if again && !self.published.is_empty() {
            return self.published[self.random.index(self.published.len())].clone();
        }
        let size = self.random.one_of(&[1, 1, 1, 1, 2, 4]);
        let batch = PublishBatch {
            number: self.published.len(),
            items: (0..size).map(|_| self.publish()).collect(),
        };
        self.published.push(batch.clone());
        batch
    }

    fn publish(&mut self) -> PublishSpec {
        self.keys += 1;
        PublishSpec {
            key: self.keys,
            guarded: self.random.percent(70),
            goal: self.random.one_of(&GOALS),
            public: self.random.percent(30),
            delay_us: self.random.one_of(&[0, 0, 0, 2, 20]) * SECOND_US,
            ttl_us: self.random.one_of(&[DAY_US, DAY_US, 30 * SECOND_US]),
            attempts_max: self.random.one_of(&[1, 3, 20]),
        }
    }

    fn claim(&mut self, wait: Duration) -> SimAction {
        let goal = self.random.one_of(&[None, None, Some("a"), Some("b")]);
        let max = self.random.one_of(&[1, 1, 3]);
        let claim = claim(goal, max, self.lease_us());
        SimAction::Claim { claim, wait }
    }

    fn lease_us(&mut self) -> i64 {
        self.random
            .one_of(&[LEASE_MIN_US, 10 * SECOND_US, 60 * SECOND_US])
    }

    /// A token of some lease, mostly a recent one; sometimes expired, sometimes invalid.
    fn presented(&mut self) -> Option<PresentedToken> {
        let count = self.client_checks.leases.len();
        let back = if self.random.percent(80) { 6 } else { count };
        let lease = count.checked_sub(1 + self.random.index(back.min(count)))?;
        let held = &self.client_checks.leases[lease];
        let (id, mut token) = (held.id, held.token);
        let mut stale = self.ledger.was_given_after(id, held.claimed_at);
        if self.random.percent(5) {
            token = Token([0xaa; 16]);
            stale = true;
        }
        Some(PresentedToken {
            lease,
            id,
            token,
            stale,
        })
    }

    /// Checks the consistency of the ledger.
    async fn look(&mut self) -> Result<Dump, BrokenPromise> {
        let trouble = |error: consign_store::Error| format!("the store cannot be read: {error}");
        let dump = self.world.store.dump().await.map_err(trouble)?;
        let findings = self.world.store.check().await.map_err(trouble)?;
        if let Some(finding) = findings.first() {
            return Err(finding.clone());
        }
        let now = self.world.now();
        self.pace_check
            .look(self.world.boots, now, &self.world.clocks)?;
        self.ledger.look(&dump, now)?;
        self.client_checks.batches.look(&self.ledger)?;
        Ok(dump)
    }

    /// Checks the consistency of the ledger, then the responses against the ledger.
    async fn judge(&mut self) -> Result<(), BrokenPromise> {
        let dump = self.look().await?;
        let now = self.world.now();
        let (done, waiting) = std::mem::take(&mut self.requests)
            .into_iter()
            .partition(|request| request.task.is_finished());
        self.requests = waiting;
        for request in done {
            self.conclude(request).await?;
        }
        self.wakes
            .look(&dump, &self.requests, self.world.calm_since, now)
    }

    async fn conclude(&mut self, request: SimRequest) -> Result<(), BrokenPromise> {
        let outcome = SimRequest::outcome(request.task).await;
        let now = self.world.now();
        self.note(&format!("#{} got {}", request.number, answer(&outcome)));
        self.count(kind(&request.action, &outcome));
        self.client_checks.concluded(
            &request.action,
            request.sent,
            &outcome,
            now,
            &mut self.ledger,
        )
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, text: &str) {
        self.log.line(self.world.now(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_history_and_another_seed_another() {
        let digests = [1, 2, 1].map(|seed| run(seed, 200).unwrap().digest);
        assert_eq!(digests[0], digests[2]);
        assert_ne!(digests[0], digests[1]);
    }

    #[test]
    fn a_few_seeds_see_every_kind_of_event() {
        let mut counts = EventCounts::new();
        for seed in 1..=10 {
            for (what, count) in run(seed, 200).unwrap().counts {
                *counts.entry(what).or_default() += count;
            }
        }
        assert_eq!(counts.len(), 22, "{counts:?}");
    }
}
