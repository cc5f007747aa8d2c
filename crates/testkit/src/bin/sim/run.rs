//! One simulation: from a seed to a history, judged after every step.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Token};
use consign_store::Dump;
use consign_store::memory::simulated::{DiskFault, Turn};
use consign_testkit::chance::Chance;

use crate::acts::{Act, Batch, LEASE_MIN_US, Publish, Request, Shown, claim};
use crate::clocks::Pace;
use crate::histories::Histories;
use crate::ledger::{Broken, Ledger};
use crate::log::Log;
use crate::wakes::Wakes;
use crate::words::{answer, kind, told};
use crate::world::World;

const REQUESTS_AT_ONCE_MAX: usize = 12;
const GOALS: [&str; 2] = ["a", "b"];
/// How long the disk takes at least.
const TICK: Duration = Duration::from_millis(1);
/// Longer than anybody may wait in vain, in turns of the disk.
const REST_TURNS: u32 = 125;
const REST_TICK: Duration = Duration::from_millis(20);

/// A promise that was broken, and how it came to it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: u64,
    pub(crate) broken: Broken,
    pub(crate) tail: Vec<String>,
}

/// A history in which every promise was kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) digest: u64,
    pub(crate) tally: Tally,
}

/// How often what happened, by name.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// Runs one seed.
pub(crate) fn run(seed: u64, steps: u64) -> Result<Kept, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing from the system");
    runtime.block_on(async {
        let mut run = Run::new(seed);
        for step in 1..=steps {
            if let Err(broken) = run.step().await {
                let tail = run.log.tail();
                return Err(Failure { step, broken, tail });
            }
        }
        Ok(Kept {
            digest: run.log.digest(),
            tally: run.tally,
        })
    })
}

struct Run {
    chance: Chance,
    world: World,
    requests: Vec<Request>,
    sent: u64,
    /// Somebody was cut off, and now everything is quiet: a wake that got lost would show.
    quiet: bool,
    published: Vec<Batch>,
    /// How many intents were thought of.
    keys: usize,
    pace: Pace,
    histories: Histories,
    ledger: Ledger,
    wakes: Wakes,
    log: Log,
    tally: Tally,
}

impl Run {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds begin far apart.
        let far = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        let mut chance = Chance::new(far);
        // A short queue is full now and then.
        let requests_max = chance.one_of(&[6, 1_000]);
        Self {
            chance,
            world: World::boot(seed, requests_max),
            requests: Vec::new(),
            sent: 0,
            quiet: false,
            published: Vec::new(),
            keys: 0,
            pace: Pace::default(),
            histories: Histories::default(),
            ledger: Ledger::default(),
            wakes: Wakes::default(),
            log: Log::default(),
            tally: Tally::new(),
        }
    }

    async fn step(&mut self) -> Result<(), Broken> {
        match self.chance.below(100) {
            _ if std::mem::take(&mut self.quiet) => self.rest().await?,
            0..8 => self.rest().await?,
            8..12 => self.sleep(),
            12..16 => self.set_wall(),
            _ => {
                for _ in 0..=self.chance.below(3) {
                    self.ask();
                }
                if self.chance.percent(15) {
                    self.cut();
                }
                // Requests reach the queue, or are dropped.
                self.world.pass(TICK).await;
                if self.chance.percent(70) {
                    let fault = self.fault();
                    self.turn(fault).await?;
                }
            }
        }
        self.world.pass(TICK).await;
        self.judge().await
    }

    fn fault(&mut self) -> DiskFault {
        match self.chance.below(100) {
            0..4 => DiskFault::Refused,
            4..7 => DiskFault::CrashBefore,
            7..10 => DiskFault::CrashAfter,
            10 => DiskFault::Lost,
            11 => DiskFault::Gone,
            12..27 => DiskFault::Slow,
            _ => DiskFault::None,
        }
    }

    async fn turn(&mut self, fault: DiskFault) -> Result<(), Broken> {
        let turn = self.world.turn(fault);
        match turn {
            Turn::Idle => {}
            Turn::Slow => self.count("slow commits"),
            Turn::Committed => {
                if self.chance.percent(15) {
                    // The answer is on its way, and finds nobody.
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
                // What was sent before the end still arrives.
                self.world.pass(TICK).await;
                for request in &self.requests {
                    request.task.abort();
                }
                self.world.restart();
            }
        }
        Ok(())
    }

    /// Nothing new happens, and the disk is fine: whoever waits for what is there must get it.
    async fn rest(&mut self) -> Result<(), Broken> {
        self.note("rest");
        for _ in 0..REST_TURNS {
            self.world.pass(REST_TICK).await;
            match self.world.turn(DiskFault::None) {
                Turn::Idle => {}
                Turn::Failed => {
                    return Err("a commit failed although the disk is fine".to_owned());
                }
                // What is there now may be cleaned up by the next commit.
                Turn::Committed | Turn::Slow | Turn::Crashed => drop(self.look().await?),
            }
        }
        Ok(())
    }

    /// Leases run out meanwhile.
    fn sleep(&mut self) {
        let us = match self.chance.below(20) {
            0 => 8 * DAY_US,
            _ => self.chance.one_of(&[1, 3, 11, 61]) * SECOND_US,
        };
        self.note(&format!("the machine sleeps for {} s", us / SECOND_US));
        self.world.sleep(us);
    }

    /// Leases must not notice.
    fn set_wall(&mut self) {
        let by_s = self.chance.one_of(&[1, 5, 61, 3_600]);
        let (count, by_s) = if self.chance.percent(60) {
            ("wall clock set back", -by_s)
        } else {
            ("wall clock set ahead", by_s)
        };
        self.count(count);
        self.note(&format!("the wall clock is set by {by_s} s"));
        self.world.set_wall(by_s * SECOND_US);
    }

    /// Cuts the connection of somebody who waits for an answer.
    fn cut(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let chosen = self.chance.index(self.requests.len());
        let number = self.requests[chosen].number;
        self.requests[chosen].task.abort();
        self.quiet = self.chance.percent(30);
        self.note(&format!("#{number} is cut off"));
    }

    /// Sends one more request.
    fn ask(&mut self) {
        if self.requests.len() >= REQUESTS_AT_ONCE_MAX {
            return;
        }
        let Some(act) = self.choose() else { return };
        self.sent += 1;
        let request = Request::send(self.sent, act, &self.world.engine);
        self.histories.sent(&request.act, request.sent);
        self.note(&format!("#{} {}", request.number, told(&request.act)));
        self.requests.push(request);
    }

    fn choose(&mut self) -> Option<Act> {
        match self.chance.below(106) {
            0..28 => Some(Act::Publish(self.batch())),
            28..40 => Some(self.claim(Duration::ZERO)),
            40..58 => {
                let wait_s = self.chance.one_of(&[4, 30]);
                Some(self.claim(Duration::from_secs(wait_s)))
            }
            58..76 => self.shown().map(Act::Complete),
            76..84 => self.shown().map(Act::Fail),
            84..92 => {
                let shown = self.shown()?;
                let lease = &self.histories.leases[shown.lease];
                let alone = !lease.is_extending() && lease.token == shown.token;
                let lease_us = self.lease_us();
                alone.then_some(Act::Extend { shown, lease_us })
            }
            92..98 => {
                let id = self.in_an_operator_s_way()?;
                let cancels = self.chance.percent(40);
                Some(if cancels {
                    Act::Cancel(id)
                } else {
                    Act::Requeue(id)
                })
            }
            98..100 => Some(Act::Clean),
            _ => {
                let id = self.worth_a_receipt()?;
                let settled = self.ledger.settled_by(id);
                let between_ms = self.chance.one_of(&[1, 30]);
                Some(Act::Receipt {
                    id,
                    settled,
                    between_reads: Duration::from_millis(between_ms),
                })
            }
        }
    }

    /// Any, but often one whose receipt is being made.
    fn in_an_operator_s_way(&mut self) -> Option<IntentId> {
        let receipts = self.requests.iter().filter_map(Request::receipt_of);
        let mut ids: Vec<IntentId> = receipts.collect();
        if ids.is_empty() || self.chance.percent(50) {
            ids = self.ledger.ids();
        }
        ids.get(self.chance.index(ids.len())).copied()
    }

    /// Mostly one that somebody was told is settled.
    fn worth_a_receipt(&mut self) -> Option<IntentId> {
        let mut ids: Vec<IntentId> = self.histories.told_settled().collect();
        if ids.is_empty() || self.chance.percent(20) {
            ids = self.ledger.ids();
        }
        ids.get(self.chance.index(ids.len())).copied()
    }

    fn batch(&mut self) -> Batch {
        let again = self.chance.percent(30);
        if again && !self.published.is_empty() {
            return self.published[self.chance.index(self.published.len())].clone();
        }
        let size = self.chance.one_of(&[1, 1, 1, 1, 2, 4]);
        let batch = Batch {
            number: self.published.len(),
            items: (0..size).map(|_| self.publish()).collect(),
        };
        self.published.push(batch.clone());
        batch
    }

    fn publish(&mut self) -> Publish {
        self.keys += 1;
        Publish {
            key: self.keys,
            guarded: self.chance.percent(70),
            goal: self.chance.one_of(&GOALS),
            public: self.chance.percent(30),
            delay_us: self.chance.one_of(&[0, 0, 0, 2, 20]) * SECOND_US,
            ttl_us: self.chance.one_of(&[DAY_US, DAY_US, 30 * SECOND_US]),
            attempts_max: self.chance.one_of(&[1, 3, 20]),
        }
    }

    fn claim(&mut self, wait: Duration) -> Act {
        let goal = self.chance.one_of(&[None, None, Some("a"), Some("b")]);
        let max = self.chance.one_of(&[1, 1, 3]);
        let claim = claim(goal, max, self.lease_us());
        Act::Claim { claim, wait }
    }

    fn lease_us(&mut self) -> i64 {
        self.chance
            .one_of(&[LEASE_MIN_US, 10 * SECOND_US, 60 * SECOND_US])
    }

    /// A token of some lease, mostly a recent one; sometimes long over, sometimes made up.
    fn shown(&mut self) -> Option<Shown> {
        let count = self.histories.leases.len();
        let back = if self.chance.percent(80) { 6 } else { count };
        let lease = count.checked_sub(1 + self.chance.index(back.min(count)))?;
        let held = &self.histories.leases[lease];
        let (id, mut token) = (held.id, held.token);
        let mut stale = self.ledger.was_given_after(id, held.claimed_at);
        if self.chance.percent(5) {
            token = Token([0xaa; 16]);
            stale = true;
        }
        Some(Shown {
            lease,
            id,
            token,
            stale,
        })
    }

    /// Holds the ledger against itself.
    async fn look(&mut self) -> Result<Dump, Broken> {
        let trouble = |error: consign_store::Error| format!("the store cannot be read: {error}");
        let dump = self.world.store.dump().await.map_err(trouble)?;
        let findings = self.world.store.check().await.map_err(trouble)?;
        if let Some(finding) = findings.first() {
            return Err(finding.clone());
        }
        let now = self.world.now();
        self.pace.look(self.world.boots, now, &self.world.clocks)?;
        self.ledger.look(&dump, now)?;
        self.histories.batches.look(&self.ledger)?;
        Ok(dump)
    }

    /// Holds the ledger against itself, then the answers against the ledger.
    async fn judge(&mut self) -> Result<(), Broken> {
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

    async fn conclude(&mut self, request: Request) -> Result<(), Broken> {
        let heard = Request::heard(request.task).await;
        let now = self.world.now();
        self.note(&format!("#{} heard {}", request.number, answer(&heard)));
        self.count(kind(&request.act, &heard));
        self.histories
            .concluded(&request.act, request.sent, &heard, now, &mut self.ledger)
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
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
        let mut tally = Tally::new();
        for seed in 1..=10 {
            for (what, count) in run(seed, 200).unwrap().tally {
                *tally.entry(what).or_default() += count;
            }
        }
        assert_eq!(tally.len(), 22, "{tally:?}");
    }
}
