//! Turns random acts into requests, and checks the invariants of their answers.
//!
//! The script tracks ids and leases from answers alone, so it can decide which lease is valid without access to a
//! store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use consign_kernel::command::{
    Admit, Advance, Answer, Audience, Begin, Claim, Clean, Command, Extend, FirstStep, Forget,
    ForgetFacts, Gate, Hold, NewIntent, OnRefusal, OnceGuard, Operate, Prune, Purge, Recover,
    Reply, Request, Settle, Settlement, Sweep, Take, Unless, Within,
};
use consign_kernel::ids::{DAY_US, FactSeq, HOUR_US, IntentId, Micros, SECOND_US, Seq, Token};
use consign_kernel::intent::Ties;
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, ApiKey, Put};
use consign_kernel::state::Verb;
use consign_store::Clock;
use consign_store::conformance::ManualClock;

use super::act::{Act, Item, Lease, Pass, Shown, Step, Wish};

#[derive(Debug)]
pub(super) struct Script {
    clock: Arc<ManualClock>,
    ids: Vec<IntentId>,
    /// Every lease ever granted.
    leases: Vec<(IntentId, String, Token)>,
    /// The live lease of each intent and its expiry, according to the answers.
    live: HashMap<IntentId, (Token, Micros)>,
    /// The series of claimed intents.
    series: HashMap<IntentId, String>,
    /// Rows whose delivery ends their lease.
    messages: HashSet<IntentId>,
    /// `live` may contain leases of rows that were removed.
    purged: bool,
}

impl Script {
    pub(super) fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            ids: Vec::new(),
            leases: Vec::new(),
            live: HashMap::new(),
            series: HashMap::new(),
            messages: HashSet::new(),
            purged: false,
        }
    }

    /// The request for an act; none if it only advances the clock.
    pub(super) fn request(&self, act: &Act, step: usize) -> Option<Request> {
        let (gate, steps) = match act {
            Act::Advance(us) => {
                self.clock.advance(*us);
                return None;
            }
            Act::Ask(gate, steps) => (gate, steps),
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(step as u64).to_le_bytes());
        Some(Request {
            gate: gate.as_ref().map(gated),
            steps: (0..)
                .zip(steps)
                .map(|(nth, asked)| self.command(asked, step as u64 * 8 + nth))
                .collect(),
            on_refusal: if step.is_multiple_of(3) {
                OnRefusal::Stop
            } else {
                OnRefusal::Continue
            },
            seed,
        })
    }

    fn command(&self, step: &Step, number: u64) -> Command {
        match step {
            Step::Begin(item, held) => Command::Begin(Box::new(self.begin(item, *held, number))),
            Step::Message(item) => Command::Begin(Box::new(self.message(item, number))),
            Step::Delivered(pick) => {
                let id = self.id(*pick);
                Command::Advance(Box::new(Advance::by_system(id, Face::Mesh, Verb::Deliver)))
            }
            Step::Prune(ahead_us, limit) => Command::Prune(Prune {
                face: Face::Mesh,
                until: self.clock.now().plus(*ahead_us),
                limit: *limit,
            }),
            Step::ForgetMessages(ahead_us, limit) => Command::Forget(Forget::OnceEnding {
                scope: once::Scope::MeshMessage,
                ahead_us: *ahead_us,
                limit: *limit,
            }),
            Step::Take(pick, holder, lease_us) => Command::Take(Take {
            detail: None,
                id: self.id(*pick),
                face: Face::Transaction,
                hold: Hold {
                    holder: (*holder).to_owned(),
                    lease_us: *lease_us,
                },
            }),
            Step::Validate(pick) => Command::validate(self.operate(*pick, Face::Transaction)),
            Step::Compensate(pick) => Command::compensate(self.operate(*pick, Face::Transaction)),
            Step::Deliver(lease) => self.settle(lease, Settlement::Deliver),
            Step::Reject(lease) => {
                let error = "no".to_owned();
                self.settle(lease, Settlement::Reject { error })
            }
            Step::LetGo(lease, after_us) => {
                let after_us = *after_us;
                self.settle(lease, Settlement::LetGo { after_us })
            }
            Step::GiveBack(lease) => self.settle(lease, Settlement::GiveBack),
            Step::Send(item) => Command::Begin(Box::new(self.send(item, number))),
            Step::HandOver(lease) => self.settle(lease, Settlement::HandOver),
            Step::Admit(items, cap) => Command::Admit(Admit {
                items: items.iter().map(new_intent).collect(),
                cap: *cap,
            }),
            Step::Claim(wish) => Command::Claim(claim(wish)),
            Step::Extend(lease, lease_us) => {
                let (id, holder, token) = self.shown(lease);
                Command::Extend(Extend {
            detail: None,
                    id,
                    holder,
                    token,
                    lease_us: *lease_us,
                })
            }
            Step::Complete(lease) => self.settle(lease, Settlement::Complete { result: None }),
            Step::Fail(lease) => self.settle(
                lease,
                Settlement::Fail {
                    error: "no".to_owned(),
                },
            ),
            Step::FailAttempt(lease, timed_out, again) => self.settle(
                lease,
                Settlement::FailAttempt {
                    error: "no".to_owned(),
                    timed_out: *timed_out,
                    again: *again,
                },
            ),
            Step::Recover(node) => Command::Recover(Recover {
                face: Face::Automation,
                node: (*node).to_owned(),
                start: "2".to_owned(),
                limit: 100,
            }),
            Step::Expect(name, version) => Command::Expect(kv(*name), *version),
            Step::Cancel(pick, face) => Command::Cancel(self.operate(*pick, *face)),
            Step::Requeue(pick, face) => Command::Requeue(self.operate(*pick, *face)),
            Step::CancelUnfinished(pick, face) => {
                Command::CancelUnfinished(self.operate(*pick, *face))
            }
            Step::RequeueUnfinished(pick, face) => {
                Command::RequeueUnfinished(self.operate(*pick, *face))
            }
            Step::Observe(pick) => Command::Observe(self.id(*pick)),
            Step::Sweep(limit) => Command::Sweep(Sweep { limit: *limit }),
            Step::Clean(face, limit) => Command::Clean(Clean {
                face: *face,
                retention_us: consign_kernel::limits::RETENTION_US,
                limit: *limit,
            }),
            Step::Purge(namespace, limit) => Command::Purge(Purge {
                face: Face::Intent,
                namespace: namespace.map(str::to_owned),
                after: Seq(0),
                limit: *limit,
            }),
            Step::Put(name, value, life_us, expect) => Command::Put(Put {
                key: kv(*name),
                value: value.to_string(),
                expires_at: life_us.map(|us| self.clock.now().plus(us)),
                expect: *expect,
            }),
            Step::Delete(name) => Command::Delete(kv(*name)),
            Step::MakeKey => Command::Put(Put {
                key: ApiKey::key("alice"),
                value: r#"{"digest":"","sealed":"","label":"","created_at":0,"total_requests":0,"window_at":0,"window_count":0}"#
                    .to_owned(),
                expires_at: None,
                expect: Some(0),
            }),
            Step::RevokeKey => Command::Delete(ApiKey::key("alice")),
            Step::ForgetOnce(limit) => Command::Forget(Forget::Once {
                scope: once::Scope::IntentIdempotency,
                limit: *limit,
            }),
            Step::ForgetRecords(limit) => Command::Forget(Forget::Records {
                kind: record::Kind::Kv,
                ahead_us: i64::from(*limit % 2) * DAY_US,
                limit: *limit,
            }),
            Step::ForgetFacts(limit) => Command::ForgetFacts(ForgetFacts {
                face: Face::Intent,
                before: self.clock.now().minus(30 * DAY_US),
                after: FactSeq(0),
                limit: *limit,
            }),
        }
    }

    /// A message under one of few ids of its client, or under none.
    fn message(&self, item: &Item, number: u64) -> Begin {
        let client_id = item.once.map(|(key, _)| format!("c-{key}"));
        let once = item.once.map(|(key, fingerprint)| OnceGuard {
            key: once::OnceKey {
                scope: once::Scope::MeshMessage,
                owner: item.namespace.to_owned(),
                key: format!("c-{key}"),
            },
            fingerprint: [fingerprint; 32],
            lifetime_us: if fingerprint == 0 { DAY_US } else { i64::MAX },
        });
        Begin {
            walk: Vec::new(),
            detail: None,
            id: IntentId::new(self.clock.now(), Seq(number), u128::from(number)),
            hold: None,
            within: None,
            item: NewIntent {
                profile: ProfileId::MeshMessage,
                goal: "dm".to_owned(),
                capability: client_id,
                once,
                unless: None,
                ties: Ties {
                    sender: Some(item.owner.to_owned()),
                    ..Ties::default()
                },
                ..new_intent(item)
            },
        }
    }

    fn begin(&self, item: &Item, held: bool, number: u64) -> Begin {
        let profile = if held {
            ProfileId::AtpTransaction
        } else {
            ProfileId::AtpPermission
        };
        let item = Item {
            profile,
            series: None,
            once: None,
            unless: None,
            ..item.clone()
        };
        let now = self.clock.now();
        Begin {
            walk: Vec::new(),
            detail: None,
            id: IntentId::new(now, Seq(number), u128::from(number)),
            hold: held.then(|| Hold {
                holder: item.owner.to_owned(),
                lease_us: 60 * SECOND_US,
            }),
            // Small limits, so that some requests exceed them.
            within: (!held).then_some(Within { each: 3, all: 6 }),
            item: NewIntent {
                target: (!held).then(|| item.owner.to_owned()),
                ..new_intent(&item)
            },
        }
    }

    fn send(&self, item: &Item, number: u64) -> Begin {
        let item = Item {
            profile: ProfileId::BeamBus,
            public: true,
            series: None,
            once: None,
            unless: None,
            ..item.clone()
        };
        Begin {
            walk: vec![FirstStep {
                verb: Verb::Claim,
                detail: None,
            }],
            detail: None,
            id: IntentId::new(self.clock.now(), Seq(number), u128::from(number)),
            hold: Some(Hold {
                holder: "node".to_owned(),
                lease_us: 60 * SECOND_US,
            }),
            within: None,
            item: new_intent(&item),
        }
    }

    fn settle(&self, lease: &Lease, how: Settlement) -> Command {
        let (id, holder, token) = self.shown(lease);
        Command::Settle(Settle {
            detail: None,
            id,
            holder,
            token,
            how,
        })
    }

    fn operate(&self, pick: usize, face: Face) -> Operate {
        Operate {
            id: self.id(pick),
            face,
            reason: "by hand".to_owned(),
        }
    }

    fn id(&self, pick: usize) -> IntentId {
        nth_newest(&self.ids, pick)
            .copied()
            .unwrap_or(IntentId([1; 16]))
    }

    fn shown(&self, lease: &Lease) -> (IntentId, String, Token) {
        let unknown = || (self.id(lease.pick), "alice".to_owned(), Token([0; 16]));
        let (id, holder, mut token) = nth_newest(&self.leases, lease.pick)
            .cloned()
            .unwrap_or_else(unknown);
        match lease.shown {
            Shown::Right => (id, holder, token),
            Shown::ForeignHolder => (id, "mallory".to_owned(), token),
            Shown::WrongToken => {
                token.0[0] ^= 0x80;
                (id, holder, token)
            }
        }
    }

    /// Records the answers, and returns every violation of an invariant.
    pub(super) fn learn(&mut self, request: &Request, reply: &Reply) -> Vec<String> {
        let now = self.clock.now();
        let mut wrong = Vec::new();
        for (command, answer) in request.steps.iter().zip(reply.iter().flatten()) {
            let Ok(answer) = answer else { continue };
            if let Some(why) = self.unproven(command, now) {
                wrong.push(why);
            }
            self.note(command, answer, now, &mut wrong);
        }
        wrong
    }

    /// A holder's command that succeeded although, according to the answers, its lease was not valid.
    fn unproven(&self, command: &Command, now: Micros) -> Option<String> {
        let (id, holder, token) = if let Command::Extend(extend) = command {
            (extend.id, &extend.holder, extend.token)
        } else if let Command::Settle(settle) = command {
            (settle.id, &settle.holder, settle.token)
        } else {
            return None;
        };
        let given = self.leases.contains(&(id, holder.clone(), token));
        let runs = self
            .live
            .get(&id)
            .is_some_and(|(held, until)| *held == token && *until > now);
        (!given || !runs).then(|| format!("{id} was settled or extended without a live lease"))
    }

    fn note(&mut self, command: &Command, answer: &Answer, now: Micros, wrong: &mut Vec<String>) {
        match (command, answer) {
            (_, Answer::Admitted(admitted)) => {
                let fresh = admitted.iter().filter(|one| !one.replayed);
                self.ids.extend(fresh.map(|one| one.id));
            }
            (_, Answer::Begun(row)) => {
                self.ids.push(row.id);
                if row.profile == ProfileId::BeamBus {
                    self.messages.insert(row.id);
                }
                if let (Some(token), Some(until)) = (row.token, row.lease_until) {
                    let holder = row.holder.clone().unwrap_or_default();
                    self.live.insert(row.id, (token, until));
                    self.leases.push((row.id, holder, token));
                }
            }
            (Command::Take(take), Answer::Claimed(taken)) => {
                for row in taken {
                    let (token, until) = (row.token.unwrap(), row.lease_until.unwrap());
                    let before = self.live.insert(row.id, (token, until));
                    if before.is_some_and(|(_, until)| until > now) {
                        wrong.push(format!("{} has two live leases", row.id));
                    }
                    self.leases.push((row.id, take.hold.holder.clone(), token));
                }
            }
            // The lease of a transaction goes on; that of a message ends.
            (Command::Settle(settle), _)
                if matches!(settle.how, Settlement::Deliver | Settlement::HandOver)
                    && !self.messages.contains(&settle.id) => {}
            (Command::Claim(claim), Answer::Claimed(claimed)) => {
                if claimed.len() > claim.max as usize {
                    wrong.push("more than was asked for".to_owned());
                }
                for row in claimed {
                    let (token, until) = (row.token.unwrap(), row.lease_until.unwrap());
                    let before = self.live.insert(row.id, (token, until));
                    if before.is_some_and(|(_, until)| until > now) {
                        wrong.push(format!("{} has two live leases", row.id));
                    }
                    if let Some(series) = &row.ties.series {
                        let beside = |(id, (_, until)): (&IntentId, &(Token, Micros))| {
                            *id != row.id && *until > now && self.series.get(id) == Some(series)
                        };
                        if !self.purged && self.live.iter().any(beside) {
                            wrong.push(format!("two of series {series} are held"));
                        }
                        self.series.insert(row.id, series.clone());
                    }
                    if row.attempts > row.attempts_max && claim.face == Face::Intent {
                        wrong.push(format!("{} is tried too often", row.id));
                    }
                    if row.run_at > now || row.expires_at <= now {
                        wrong.push(format!("{} is not due", row.id));
                    }
                    self.leases.push((row.id, claim.holder.clone(), token));
                }
            }
            (Command::Extend(extend), Answer::Extended { until }) => {
                self.live.insert(extend.id, (extend.token, *until));
            }
            (Command::Settle(settle), _) => {
                self.live.remove(&settle.id);
            }
            (_, Answer::Recovered(rows)) => {
                for row in rows {
                    self.live.remove(&row.id);
                }
            }
            (Command::Purge(_), _) => self.purged = true,
            (
                Command::Cancel(operate)
                | Command::Requeue(operate)
                | Command::CancelUnfinished(operate)
                | Command::RequeueUnfinished(operate),
                _,
            ) => {
                self.live.remove(&operate.id);
            }
            (Command::Advance(advance), _) if advance.verb == Verb::Compensate => {
                self.live.remove(&advance.id);
            }
            _ => {}
        }
    }
}

fn nth_newest<T>(all: &[T], pick: usize) -> Option<&T> {
    all.iter().rev().nth(pick % all.len().max(1))
}

fn gated(pass: &Pass) -> Gate {
    Gate {
        caller: pass.caller.to_owned(),
        metered: pass.metered,
        nonce: pass.nonce.map(|nonce| nonce.to_string()),
        cost: pass.cost,
    }
}

fn new_intent(item: &Item) -> NewIntent {
    let owner = item.owner.to_owned();
    NewIntent {
        profile: item.profile,
        namespace: item.namespace.to_owned(),
        goal: item.goal.to_owned(),
        public: item.public,
        target: item.target.map(str::to_owned),
        capability: item.capability.map(str::to_owned),
        priority: item.priority,
        payload: "{}".to_owned(),
        ties: Ties {
            parent: None,
            series: item.series.map(str::to_owned),
            sender: None,
        },
        unless: item.unless.map(|open| Unless {
            open,
            completed_within_us: HOUR_US,
        }),
        traceparent: None,
        delay_us: item.delay_us,
        ttl_us: item.ttl_us,
        attempts_max: item.attempts_max,
        backoff_us: SECOND_US,
        once: item.once.map(|(key, fingerprint)| OnceGuard {
            key: once::OnceKey {
                scope: once::Scope::IntentIdempotency,
                owner: owner.clone(),
                key: key.to_string(),
            },
            fingerprint: [fingerprint; 32],
            lifetime_us: DAY_US,
        }),
        owner,
    }
}

fn claim(wish: &Wish) -> Claim {
    // So that a later start can recover it.
    let of_automation = (wish.face == Face::Automation).then_some(wish.holder);
    let holder = of_automation.map_or_else(
        || wish.holder.to_owned(),
        |holder| Recover::holder(holder, "1"),
    );
    Claim {
        face: wish.face,
        namespace: wish.namespace.to_owned(),
        goal: wish.goal.map(str::to_owned),
        holder,
        audience: wish
            .publisher
            .or(of_automation)
            .map_or(Audience::Caller, |publisher| {
                Audience::Publisher(publisher.to_owned())
            }),
        worker_id: wish.worker.map(str::to_owned),
        capabilities: wish
            .capabilities
            .iter()
            .map(|&text| text.to_owned())
            .collect(),
        max: wish.max,
        lease_us: wish.lease_us,
        grant: wish.grant.map(kv),
    }
}

fn kv(name: u8) -> record::Key {
    record::Key {
        kind: record::Kind::Kv,
        owner: "alice".to_owned(),
        name: name.to_string(),
    }
}
