//! Admission: new intents, all of a command or none, each at most once per once-key.

use std::collections::HashMap;

use super::{Cx, Decision, FactSource, Needs, View, Write, fact};
use crate::command::{Admit, Admitted, Answer, NewIntent};
use crate::error::Refusal;
use crate::ids::{IntentId, Micros, Seq};
use crate::intent::{Intent, Series, Shelf};
use crate::once::{self, Verdict};
use crate::plant::{self, Plant};
use crate::profile::{LifeClock, LifeEnd};
use crate::state::{Cause, State, Verb};

pub(super) fn needs(admit: &Admit) -> Needs<'_> {
    let Some(first) = admit.items.first() else {
        return Needs::Nothing;
    };
    Needs::Admission {
        once: admit
            .items
            .iter()
            .map(|item| item.once.as_ref().map(|guard| &guard.key))
            .collect(),
        series: admit.items.iter().map(asked_series).collect(),
        face: first.profile.profile().face,
        owner: &first.owner,
        capped: admit.cap.is_some(),
    }
}

/// The series of an item whose admission depends on the other rows of the series.
fn asked_series(item: &NewIntent) -> Option<&str> {
    item.unless.and(item.ties.series.as_deref())
}

pub(super) fn decide(view: &View, admit: &Admit, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    let mut batch = AdmitBatch::default();
    for (index, item) in admit.items.iter().enumerate() {
        let stored = view.once.get(index).and_then(Option::as_ref);
        let series = view.series.get(index).and_then(Option::as_ref);
        if batch.is_served(item, series, cx.now) {
            continue;
        }
        batch.take(index, item, stored, cx)?;
    }
    match admit.cap {
        Some(limit) if batch.fresh > 0 && view.unsettled + batch.fresh > limit => {
            Err(Refusal::CapReached {
                open: view.unsettled,
                limit,
            })
        }
        _ => Ok(Decision {
            writes: batch.writes,
            answer: Answer::Admitted(batch.admitted),
        }),
    }
}

#[derive(Default)]
struct AdmitBatch<'a> {
    writes: Vec<Write>,
    admitted: Vec<Admitted>,
    fresh: u64,
    /// Keys first used by an earlier item of this command.
    used: HashMap<&'a once::OnceKey, once::FirstUse>,
    /// Series to which an earlier item of this command added a row.
    waiting: HashMap<&'a str, Admitted>,
}

impl<'a> AdmitBatch<'a> {
    /// Whether another row of the series answers the request instead.
    fn is_served(&mut self, item: &NewIntent, series: Option<&Series>, now: Micros) -> bool {
        let (Some(unless), Some(name)) = (item.unless, asked_series(item)) else {
            return false;
        };
        let open = series.and_then(|series| series.held.as_ref().or(series.waiting.as_ref()));
        let completed = series.and_then(|series| series.completed.as_ref());
        let recent = completed.filter(|intent| {
            let at = intent.settled_at.unwrap_or(intent.created_at);
            at.plus(unless.completed_within_us) > now
        });
        let serves = open
            .filter(|_| unless.open)
            .or(recent)
            .map(|intent| Admitted {
                id: intent.id,
                namespace: intent.namespace.clone(),
                replayed: true,
            });
        let own = self.waiting.get(name).filter(|_| unless.open).cloned();
        let served = serves.or(own);
        let is_served = served.is_some();
        self.admitted.extend(served);
        is_served
    }

    fn take(
        &mut self,
        index: usize,
        item: &'a NewIntent,
        stored: Option<&once::FirstUse>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Refusal> {
        if let Some(guard) = &item.once {
            match once::compare(
                self.used.get(&guard.key).or(stored),
                &guard.fingerprint,
                cx.now,
            ) {
                Verdict::First => {}
                Verdict::Same(row) => {
                    self.admitted.push(replay(row));
                    return Ok(());
                }
                Verdict::Different(row) if plant::on(Plant::IgnoreFingerprint) => {
                    self.admitted.push(replay(row));
                    return Ok(());
                }
                Verdict::Different(_) => return Err(Refusal::OnceConflict { index }),
            }
        }
        let mut intent = admitted(item, cx);
        if let Some(guard) = &item.once {
            let row = once::FirstUse {
                key: guard.key.clone(),
                fingerprint: guard.fingerprint,
                intent: Some(intent.id),
                answer: intent.namespace.clone(),
                until: cx.now.plus(guard.lifetime_us),
            };
            self.used.insert(&guard.key, row.clone());
            self.writes.push(Write::Once(row));
        }
        self.fresh += 1;
        self.admitted.push(Admitted {
            id: intent.id,
            namespace: intent.namespace.clone(),
            replayed: false,
        });
        if let Some(series) = &item.ties.series {
            let served = Admitted {
                id: intent.id,
                namespace: intent.namespace.clone(),
                replayed: true,
            };
            self.waiting.entry(series).or_insert(served);
        }
        let source = FactSource::by(&item.owner, Verb::Admit);
        self.writes.push(fact(None, &mut intent, source, cx));
        self.writes.push(Write::New(intent));
        Ok(())
    }
}

fn replay(row: &once::FirstUse) -> Admitted {
    Admitted {
        id: row.intent.unwrap_or(IntentId([0; 16])),
        namespace: row.answer.clone(),
        replayed: true,
    }
}

fn admitted(item: &NewIntent, cx: &mut Cx<'_>) -> Intent {
    debug_assert!(
        item.profile.profile().start.contains(&State::Queued),
        "only queued starts are admitted here"
    );
    let seq = cx.next_seq();
    let id = IntentId::new(cx.now, seq, cx.entropy.draw());
    let mut intent = made(item, id, seq, State::Queued, cx);
    intent.reshelve(cx.now);
    intent
}

/// A new row as it was asked for, before it is put on a shelf.
pub(super) fn made(item: &NewIntent, id: IntentId, seq: Seq, state: State, cx: &Cx<'_>) -> Intent {
    let (now, profile) = (cx.now, item.profile.profile());
    let expires_at = match (profile.life_end, profile.life_clock) {
        (LifeEnd::Never, _) => Micros::MAX,
        (_, LifeClock::Engine) => now.plus(item.ttl_us),
        (_, LifeClock::Wall) => cx.wall.plus(item.ttl_us),
    };
    Intent {
        seq,
        id,
        profile: item.profile,
        namespace: item.namespace.clone(),
        goal: item.goal.clone(),
        owner: item.owner.clone(),
        public: item.public,
        target: item.target.clone(),
        capability: item.capability.clone(),
        priority: item.priority,
        payload: item.payload.clone(),
        traceparent: item.traceparent.clone(),
        ties: item.ties.clone(),
        attempts: 0,
        attempts_max: item.attempts_max,
        backoff_us: item.backoff_us,
        created_at: now,
        run_at: now.plus(item.delay_us),
        expires_at,
        state,
        cause: Cause::None,
        shelf: Shelf::Ready,
        wake_at: Micros::MAX,
        holder: None,
        worker: None,
        token: None,
        claimed_at: None,
        lease_until: None,
        settled_at: None,
        last_error: None,
        result: None,
        last_fact: None,
    }
}
