//! Commands to the ledger and their answers, as owned plain data that may cross threads.

use crate::ids::{FactSeq, IntentId, Micros, Seq, Token};
use crate::intent::{Intent, Outcome, Ties};
use crate::lane::{Column, LaneKey, Probe};
use crate::once;
use crate::profile::{Face, ProfileId};
use crate::record;
use crate::state::{State, Verb};

/// The steps that one caller submits for one commit. A refused gate refuses all of them.
#[derive(Clone, Debug)]
pub struct Request {
    pub gate: Option<Gate>,
    pub steps: Vec<Command>,
    pub on_refusal: OnRefusal,
    /// The seed of all entropy of the request (tokens, ids, jitter); drawn by the engine.
    pub seed: [u8; 32],
}

/// What a refused step means for the steps after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// They are carried out all the same.
    #[default]
    Continue,
    /// They are not carried out. If every step that can be refused comes first, either all steps happen or none.
    Stop,
    /// If it is the first step, no other is carried out. A later one affects none.
    Guarded,
}

/// Checks before the steps. Their writes are kept even if the steps are refused.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The caller's key id, scope of its nonces.
    pub caller: String,
    /// Whether the key has a record and a rate limit; the main key has neither.
    pub metered: bool,
    /// Nonce of a signed request, consumed as soon as the signature is verified.
    pub nonce: Option<String>,
    /// How much the request counts against the rate limit; zero when a waiting request checks again.
    pub cost: u32,
}

#[derive(Clone, Debug)]
pub enum Command {
    Admit(Admit),
    /// Creates a row of a profile that does not begin in a queue.
    Begin(Box<Begin>),
    Claim(Claim),
    /// Takes the lease of one row by its id.
    Take(Take),
    Extend(Extend),
    Settle(Settle),
    /// Takes a legal step that needs no lease.
    Advance(Box<Advance>),
    Cancel(Operate),
    Requeue(Operate),
    /// The same, but a completed row is refused and keeps its result.
    CancelUnfinished(Operate),
    RequeueUnfinished(Operate),
    /// Removes one row, unless a holder works on it or its profile keeps rows for ever.
    Remove(Operate),
    /// A step on one row, refused if the row has changed since a fact.
    IfUnchanged(FactSeq, Box<Self>),
    /// Applies passed deadlines to one row before it is shown.
    Observe(IntentId),
    /// Applies passed deadlines to all rows that have one.
    Sweep(Sweep),
    /// Releases the leases that a dead process held.
    Recover(Recover),
    /// Removes what ends by an instant, which may lie ahead.
    Prune(Prune),
    /// One bounded piece of a cleanup pass.
    Clean(Clean),
    /// One bounded piece of a purge.
    Purge(Purge),
    Put(record::Put),
    /// Refused unless the record has the version that the caller read; zero means that there is none.
    Expect(record::Key, u64),
    Delete(record::Key),
    /// Set-wise removal of entries that expired or whose owner was removed.
    Forget(Forget),
    /// One bounded piece of the removal of old facts.
    ForgetFacts(ForgetFacts),
    /// Inserts a row that another system made, as it is.
    Restore(Box<Restore>),
}

impl Command {
    /// Declares a row checked and allowed.
    pub fn validate(operate: Operate) -> Self {
        Self::by_operator(operate, Verb::Validate)
    }

    /// Ends a row that had an effect, now that the effect is undone.
    pub fn compensate(operate: Operate) -> Self {
        Self::by_operator(operate, Verb::Compensate)
    }

    fn by_operator(operate: Operate, verb: Verb) -> Self {
        let Operate { id, face, reason } = operate;
        Self::Advance(Box::new(Advance::by_operator(id, face, verb, reason)))
    }
}

/// New intents, all or none.
#[derive(Clone, Debug)]
pub struct Admit {
    pub items: Vec<NewIntent>,
    /// At most this many unsettled intents per owner.
    pub cap: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct NewIntent {
    pub profile: ProfileId,
    pub namespace: String,
    pub goal: String,
    pub owner: String,
    pub public: bool,
    pub target: Option<String>,
    pub capability: Option<String>,
    pub priority: i32,
    pub payload: String,
    pub traceparent: Option<String>,
    pub delay_us: i64,
    pub ttl_us: i64,
    pub attempts_max: u32,
    pub backoff_us: i64,
    pub once: Option<OnceGuard>,
    pub ties: Ties,
    pub unless: Option<Unless>,
}

/// A new row whose id the caller chooses, so that other writes of the same commit can refer to it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// Must be new: made by [`IntentId::new`] from fresh entropy.
    pub id: IntentId,
    pub item: NewIntent,
    /// The first lease, for a profile whose rows begin leased, or for the claim of the walk.
    pub hold: Option<Hold>,
    /// Refused if too many rows wait for consent.
    pub within: Option<Within>,
    /// The steps that the row takes at once after its beginning, each with its own fact.
    pub walk: Vec<FirstStep>,
    /// For the fact of the beginning.
    pub detail: Option<String>,
}

/// A step of a row that has just begun.
#[derive(Clone, Debug)]
pub struct FirstStep {
    /// A validation, a claim, or an extension of that claim.
    pub verb: Verb,
    /// For the fact.
    pub detail: Option<String>,
}

/// A row that another system made. The retention of an ended row begins now.
#[derive(Clone, Debug)]
pub struct Restore {
    /// Its sequence and its last fact are assigned here.
    pub intent: Intent,
    /// Its history so far, oldest first, kept as the other system wrote it. Without one, the history begins now.
    pub history: Vec<EarlierFact>,
    /// Refused if the key was used before.
    pub once: Option<OnceGuard>,
}

impl Restore {
    /// A row without history and without a once-key.
    pub const fn bare(intent: Intent) -> Self {
        Self {
            intent,
            history: Vec::new(),
            once: None,
        }
    }
}

/// A fact that another system recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierFact {
    /// The wall clock when it happened.
    pub at: Micros,
    pub verb: Verb,
    pub to: State,
    pub actor: Option<String>,
    pub detail: Option<String>,
}

/// How many rows may wait for consent, or wait for their removal because none was given. The requester of a row is its
/// `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    pub each: u64,
    pub all: u64,
}

#[derive(Clone, Debug)]
pub struct Hold {
    pub holder: String,
    pub lease_us: i64,
}

/// When an intent is not stored because another one of its series answers the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unless {
    /// One that is queued or leased.
    pub open: bool,
    /// One that was completed no longer ago than this.
    pub completed_within_us: i64,
}

#[derive(Clone, Debug)]
pub struct OnceGuard {
    pub key: once::OnceKey,
    pub fingerprint: [u8; 32],
    pub lifetime_us: i64,
}

/// The publishers whose intents a claim may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The caller's own, and public ones.
    Caller,
    /// Those of one publisher, public or not.
    Publisher(String),
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub face: Face,
    pub namespace: String,
    pub goal: Option<String>,
    /// Key id of the claimer.
    pub holder: String,
    pub audience: Audience,
    pub worker_id: Option<String>,
    pub capabilities: Vec<String>,
    pub max: u32,
    pub lease_us: i64,
    /// The record that permits the claim, which is refused without it.
    pub grant: Option<record::Key>,
}

impl Claim {
    /// The number of lanes that [`Claim::probes`] returns, without computing them.
    pub fn lanes(&self) -> usize {
        let audiences = match self.audience {
            Audience::Caller => 2,
            Audience::Publisher(_) => 1,
        };
        audiences * (1 + usize::from(self.worker_id.is_some())) * (1 + self.capabilities.len())
    }

    /// The lanes whose heads compete for this claim.
    pub fn probes(&self) -> Vec<Probe> {
        let (owner, everybody) = match &self.audience {
            Audience::Caller => (self.holder.as_str(), true),
            Audience::Publisher(owner) => (owner.as_str(), false),
        };
        let goal = self.goal.as_deref();
        let (own, public) = match goal {
            Some(_) => (Column::OwnGoal, Column::PublicGoal),
            None => (Column::Own, Column::Public),
        };
        let mut probes = Vec::with_capacity(4);
        for target in std::iter::once(None).chain(self.worker_id.iter().map(|id| Some(id.as_str())))
        {
            let capabilities = self
                .capabilities
                .iter()
                .map(|capability| Some(capability.as_str()));
            for capability in std::iter::once(None).chain(capabilities) {
                let key = LaneKey {
                    face: self.face,
                    namespace: &self.namespace,
                    target,
                    capability,
                };
                probes.push(Probe {
                    column: own,
                    lane: key.lane(Some(owner), goal),
                });
                if everybody {
                    probes.push(Probe {
                        column: public,
                        lane: key.lane(None, goal),
                    });
                }
            }
        }
        probes
    }
}

/// Takes one row of a face that has no running lease, even if it is not due.
#[derive(Clone, Debug)]
pub struct Take {
    pub id: IntentId,
    pub face: Face,
    pub hold: Hold,
    /// For the fact.
    pub detail: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Extend {
    pub id: IntentId,
    pub holder: String,
    pub token: Token,
    pub lease_us: i64,
    /// For the fact.
    pub detail: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Settle {
    pub id: IntentId,
    pub holder: String,
    pub token: Token,
    pub how: Settlement,
    /// For the fact, if it says more than the error of the settlement.
    pub detail: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Settlement {
    /// The profile decides whether a row that was not delivered is delivered by it.
    Complete {
        result: Option<Outcome>,
    },
    Fail {
        error: String,
    },
    /// The same, but the holder decides about the next attempt. Without attempts left the row is a dead letter.
    FailWith {
        error: String,
        retry: HolderRetry,
    },
    /// The same as `Fail`, with a delay that begins at an earlier time than now.
    FailSince {
        error: String,
        since: Micros,
    },
    /// For profiles in which a failed attempt is a state of its own: the row rests there, or the next step is written as well.
    FailAttempt {
        error: String,
        timed_out: bool,
        /// Another attempt may succeed.
        again: bool,
    },
    /// The other side accepted it and its outcome is open. The profile decides whether the lease continues.
    Deliver,
    /// The holder attempted nothing: the row is delivered, so that it waits for its recipient, and the attempt does not count.
    HandOver,
    /// The other side refused it for good.
    Reject {
        error: String,
    },
    /// The outcome is unknown: the row keeps its state without a lease, and any holder may take it after a pause.
    LetGo {
        after_us: i64,
    },
    /// Another attempt may succeed, after a pause that the holder knows: the row is queued again, and the attempt counts.
    RetryLater {
        after_us: i64,
        error: Option<String>,
    },
    /// No attempt can succeed: the row is a dead letter, whatever attempts are left.
    Kill {
        error: String,
    },
    /// The holder lacked the resources to begin: the row is queued again as before, and the attempt does not count.
    GiveBack,
}

/// What a holder knows about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderRetry {
    /// No attempt can succeed: the row is a dead letter at once.
    Never,
    /// It begins no earlier than this; refused if the life of the row ends before.
    After { us: i64 },
}

/// A step by a recipient, by the system or by an operator. A profile lists the steps that may be taken so.
#[derive(Clone, Debug)]
pub struct Advance {
    pub id: IntentId,
    pub face: Face,
    pub verb: Verb,
    /// For the fact; `None` for the system.
    pub actor: Option<String>,
    /// For the fact. It becomes the error of a row that fails, dies or is recovered, unless `error` is given.
    pub detail: Option<String>,
    pub error: Option<String>,
    /// What a completed or failed row leaves behind.
    pub result: Option<Outcome>,
    /// How long a row that is queued again waits.
    pub after_us: i64,
    /// Refuses a step to the state that the row has already. Otherwise such a step adds its fact and changes nothing else.
    pub refuse_repeated: bool,
    /// The state in which the caller saw the row; in any other one the step is refused.
    pub from: Option<State>,
    /// The attempt in which the caller saw the row; during any other one the step is refused.
    pub attempt: Option<u32>,
}

impl Advance {
    /// A step that an operator, or a protocol in an operator's name, takes for this reason.
    pub fn by_operator(id: IntentId, face: Face, verb: Verb, reason: String) -> Self {
        Self {
            actor: Some(OPERATOR.to_owned()),
            detail: Some(reason),
            ..Self::by_system(id, face, verb)
        }
    }

    pub const fn by_system(id: IntentId, face: Face, verb: Verb) -> Self {
        Self {
            id,
            face,
            verb,
            actor: None,
            detail: None,
            error: None,
            result: None,
            after_us: 0,
            refuse_repeated: false,
            from: None,
            attempt: None,
        }
    }
}

/// The actor of facts that no key caused.
pub const OPERATOR: &str = "operator";

/// An operator's request about one row of a face.
#[derive(Clone, Debug)]
pub struct Operate {
    pub id: IntentId,
    pub face: Face,
    pub reason: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub limit: u32,
}

/// Rows leased to an earlier start of `node`. The holder tells the starts apart, see [`Recover::holder`].
#[derive(Clone, Debug)]
pub struct Recover {
    pub face: Face,
    pub node: String,
    pub start: String,
    /// How many leases of the face are examined, of any holder.
    pub limit: u32,
}

impl Recover {
    /// The holder name under which a start of a node claims rows that a later start may have to recover.
    pub fn holder(node: &str, start: &str) -> String {
        format!("{node}/{start}")
    }
}

/// Rows whose profile removes them at the end of their life.
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    pub face: Face,
    pub until: Micros,
    /// How many rows are examined.
    pub limit: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Clean {
    pub face: Face,
    /// How long settled rows are kept.
    pub retention_us: i64,
    pub limit: u32,
}

#[derive(Clone, Debug)]
pub struct Purge {
    pub face: Face,
    pub namespace: Option<String>,
    /// Where the last piece stopped.
    pub after: Seq,
    /// How many rows are examined, of any face.
    pub limit: u32,
}

#[derive(Clone, Debug)]
pub enum Forget {
    Once {
        scope: once::Scope,
        limit: u32,
    },
    /// Those that expired, and those that will expire within `ahead_us`.
    OnceEnding {
        scope: once::Scope,
        ahead_us: i64,
        limit: u32,
    },
    OnceOf {
        owner: String,
    },
    /// Notes with the once-rows of these messages that the messages do not exist, where that is so.
    LostMessages {
        keys: Vec<once::OnceKey>,
    },
    /// The scopes that a purge of the face removes; see [`once::Scope::purged`].
    OnceOfFace {
        face: Face,
        limit: u32,
    },
    /// Those that expired, and those that will expire within `ahead_us`.
    Records {
        kind: record::Kind,
        ahead_us: i64,
        limit: u32,
    },
    AllRecords {
        kind: record::Kind,
        limit: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct ForgetFacts {
    pub face: Face,
    pub before: Micros,
    /// Where the last piece stopped.
    pub after: FactSeq,
    /// How many facts are examined, of any face.
    pub limit: u32,
}

/// The result of a request: an answer per step, or the gate's refusal for all.
pub type Reply = Result<Vec<Result<Answer, crate::error::Refusal>>, crate::error::Refusal>;

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Admitted(Vec<Admitted>),
    Begun(Box<Intent>),
    Claimed(Vec<Intent>),
    Extended {
        until: Micros,
    },
    Settled {
        state: crate::state::State,
        run_at: Micros,
    },
    Operated,
    Observed(Option<Box<Intent>>),
    /// How many rows moved; `more` when the limit cut the work short.
    Swept {
        rows: u32,
        more: bool,
    },
    /// The rows after their recovery.
    Recovered(Vec<Intent>),
    Cleaned(Cleaned),
    /// How many messages and other rows were removed; `more` when the limit cut the work short.
    Pruned {
        messages: u64,
        others: u64,
        more: bool,
    },
    /// `after` is where the next piece starts, if there may be more.
    Purged {
        rows: u32,
        after: Option<Seq>,
    },
    Put {
        version: u64,
    },
    AsExpected,
    Deleted {
        existed: bool,
    },
    Forgotten {
        rows: u64,
    },
    /// `after` is where the next piece starts, if more facts may be old enough.
    FactsForgotten {
        rows: u64,
        after: Option<FactSeq>,
    },
    Restored,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub id: IntentId,
    pub namespace: String,
    /// The key was used before, or another intent of the series answers the request: nothing new was stored.
    pub replayed: bool,
}

/// Counters of a cleanup pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub expired_deleted: u64,
    pub leases_requeued: u64,
    pub leases_dead: u64,
    pub done_deleted: u64,
    pub dead_deleted: u64,
    pub more: bool,
}
