//! The loop that lets time act: delays end, leases run out, old once-keys and facts are forgotten.
//!
//! Nothing rests on it: claims and reads let time act themselves. It makes waiting workers wake at the right moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use consign_kernel::command::{Answer, Command, Forget, ForgetFacts, Sweep};
use consign_kernel::ids::{FactSeq, Micros, SECOND_US};
use consign_kernel::limits;
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use crate::{Engine, Error};

const SLEEP_MAX: Duration = Duration::from_secs(1);
const SLEEP_MIN: Duration = Duration::from_millis(2);
/// While what is due cannot be moved, because another transaction holds it or this node's clock is wrong.
const SLEEP_WHILE_BLOCKED: Duration = Duration::from_millis(100);
/// After a failure, so that a full disk is not hammered.
const SLEEP_AFTER_ERROR: Duration = Duration::from_secs(1);
const FORGET_INTERVAL_US: i64 = 60 * SECOND_US;
const FORGET_ROWS_MAX: u32 = 2_000;
/// Per kind and round; then leases and delays have their turn.
const FORGET_PIECES_MAX: u32 = 20;

/// Records that come with an end of their own.
const EXPIRING_KINDS: [Kind; 6] = [
    Kind::Kv,
    Kind::Receipt,
    Kind::Node,
    Kind::ActionClaim,
    Kind::RailEvent,
    // Only the lines of a user's list of drafts have an end.
    Kind::Permission,
];

#[derive(Debug)]
pub struct Timekeeper {
    engine: Engine,
    forget_at: Micros,
    /// Up to here all facts are old, and those that are left belong to others.
    facts_seen: FactSeq,
}

impl Timekeeper {
    pub fn new(engine: Engine) -> Self {
        let forget_at = engine.now().plus(FORGET_INTERVAL_US);
        Self {
            engine,
            forget_at,
            facts_seen: FactSeq(0),
        }
    }

    /// Runs until `shutdown` ends. `follow` is called about once a second, for the clock.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()> + Send,
        follow: impl Fn() + Send,
    ) {
        tokio::pin!(shutdown);
        loop {
            follow();
            let pause = match self.tick().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "the timekeeper could not do its round; it tries again");
                    SLEEP_AFTER_ERROR
                }
            };
            // In this order, not in a random one: a simulation must be repeatable.
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                () = tokio::time::sleep(pause) => {}
                () = self.engine.inner.earlier.notified() => tokio::time::sleep(SLEEP_MIN).await,
            }
        }
    }

    /// One round of bounded work; says how long nothing will be due.
    pub async fn tick(&mut self) -> Result<Duration, Error> {
        let before = self.engine.now();
        let swept = self.engine.sweep().await?;
        let now = self.engine.now();
        let mut more = swept.more;
        if now >= self.forget_at && !self.engine.has_wrong_clock() {
            // A piece that fails is not tried again at once: leases and delays have their turn.
            self.forget_at = now.plus(FORGET_INTERVAL_US);
            let rest = self.forget(now).await?;
            self.forget_at = if rest {
                now
            } else {
                now.plus(FORGET_INTERVAL_US)
            };
            more |= rest;
        }
        if more {
            return Ok(Duration::ZERO);
        }
        let due = self.engine.inner.store.next_due().await?;
        let latest = now.plus(micros(SLEEP_MAX));
        let mut until = due.map_or(latest, |due| due.min(latest));
        if swept.rows == 0 && until <= before {
            // It was due already and stayed: to look at once would be to look hundreds of times a second.
            until = now.plus(micros(SLEEP_WHILE_BLOCKED));
        }
        self.engine.inner.planned.store(until.0, Ordering::Release);
        let pause_us = u64::try_from(until.0 - self.engine.now().0).unwrap_or(0);
        Ok(Duration::from_micros(pause_us).max(SLEEP_MIN))
    }

    /// Forgets in small pieces, so that others get their turn; says whether there is more to forget.
    async fn forget(&mut self, now: Micros) -> Result<bool, Error> {
        let mut rest = false;
        let limit = FORGET_ROWS_MAX;
        let mut pieces: Vec<Forget> = Scope::ALL
            .iter()
            .map(|scope| Forget::Once {
                scope: *scope,
                limit,
            })
            .collect();
        for kind in EXPIRING_KINDS {
            pieces.push(Forget::Records {
                kind,
                ahead_us: 0,
                limit,
            });
        }
        for piece in pieces {
            for number in 1..=FORGET_PIECES_MAX {
                let forgotten = self
                    .engine
                    .apply(None, Command::Forget(piece.clone()))
                    .await?;
                let full = Answer::Forgotten {
                    rows: u64::from(limit),
                };
                if forgotten != full {
                    break;
                }
                rest |= number == FORGET_PIECES_MAX;
            }
        }
        Ok(self.forget_facts(now).await? || rest)
    }

    /// Of this face alone: others keep theirs longer, or for ever, and are walked past once.
    async fn forget_facts(&mut self, now: Micros) -> Result<bool, Error> {
        for _ in 0..FORGET_PIECES_MAX {
            let piece = ForgetFacts {
                face: Face::Intent,
                before: now.minus(limits::FACT_RETENTION_US),
                after: self.facts_seen,
                limit: FORGET_ROWS_MAX,
            };
            let Answer::FactsForgotten { after, .. } =
                self.engine.apply(None, Command::ForgetFacts(piece)).await?
            else {
                return Err(Error::Internal(
                    "forgetting facts answered something else".to_owned(),
                ));
            };
            let Some(after) = after else {
                return Ok(false);
            };
            self.facts_seen = after;
        }
        Ok(true)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepReport {
    /// How many rows moved.
    pub rows: u32,
    /// More are due.
    pub more: bool,
}

impl Engine {
    /// Lets time act on a bounded number of rows.
    pub async fn sweep(&self) -> Result<SweepReport, Error> {
        let sweep = Command::Sweep(Sweep {
            limit: limits::SWEEP_ROWS_MAX,
        });
        let Answer::Swept { rows, more } = self.apply(None, sweep).await? else {
            return Err(Error::Internal(
                "a sweep answered something else".to_owned(),
            ));
        };
        Ok(SweepReport { rows, more })
    }
}
