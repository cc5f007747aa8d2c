//! Translation between stores that give the same intents different numbers.
//!
//! PostgreSQL assigns numbers in blocks, with gaps, and an id contains some bits of its number. So requests to it use its
//! own ids, and its answers and contents are translated before the comparison with the model: ids by the mapping of
//! admitted intents, numbers by their rank.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use consign_kernel::command::{Answer, Command, Reply, Request};
use consign_kernel::ids::{FactSeq, IntentId, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::record::{Kind, Record};
use consign_store::Dump;

#[derive(Debug, Default)]
pub(super) struct Names {
    /// From the model's ids to the other's, and back.
    theirs: HashMap<IntentId, IntentId>,
    ours: HashMap<IntentId, IntentId>,
}

impl Names {
    /// A request of the model, with the ids of the other store.
    pub(super) fn ask(&self, request: &Request) -> Request {
        let mut request = request.clone();
        for step in &mut request.steps {
            if let Some(id) = named(step) {
                *id = self.theirs.get(id).copied().unwrap_or(*id);
            }
        }
        request
    }

    /// Records which ids of the two stores belong together.
    pub(super) fn learn(&mut self, model: &Reply, other: &Reply) {
        let pairs = model.iter().flatten().zip(other.iter().flatten());
        for pair in pairs {
            let (Ok(Answer::Admitted(model)), Ok(Answer::Admitted(other))) = pair else {
                continue;
            };
            for (model, other) in model.iter().zip(other) {
                if !model.replayed && !other.replayed {
                    self.theirs.insert(model.id, other.id);
                    self.ours.insert(other.id, model.id);
                }
            }
        }
    }

    /// The other's answer with the model's ids. Numbers are left out: [`ranked`] compares them at the end.
    pub(super) fn reply(&self, other: &Reply) -> Reply {
        let mut reply = other.clone();
        for answer in reply.iter_mut().flatten().flatten() {
            if let Answer::Admitted(admitted) = answer {
                for one in admitted {
                    one.id = self.name(one.id);
                }
            } else if let Answer::Claimed(intents) | Answer::Recovered(intents) = answer {
                for intent in intents {
                    intent.id = self.name(intent.id);
                }
            } else if let Answer::Observed(Some(intent)) = answer {
                intent.id = self.name(intent.id);
            }
        }
        unnumbered(&reply)
    }

    /// The other's content with the model's ids.
    pub(super) fn dump(&self, mut other: Dump) -> Dump {
        for intent in &mut other.intents {
            intent.id = self.name(intent.id);
        }
        for row in &mut other.once {
            row.intent = row.intent.map(|id| self.name(id));
        }
        for past in past_jobs(&mut other.records) {
            let id = past.value.parse().expect("it holds an id");
            past.value = self.name(id).to_string();
        }
        other
    }

    fn name(&self, id: IntentId) -> IntentId {
        self.ours.get(&id).copied().unwrap_or(id)
    }
}

fn named(step: &mut Command) -> Option<&mut IntentId> {
    match step {
        Command::Extend(extend) => Some(&mut extend.id),
        Command::Settle(settle) => Some(&mut settle.id),
        Command::Take(take) => Some(&mut take.id),
        Command::Advance(advance) => Some(&mut advance.id),
        Command::Cancel(operate)
        | Command::Requeue(operate)
        | Command::CancelUnfinished(operate)
        | Command::RequeueUnfinished(operate)
        | Command::Remove(operate) => Some(&mut operate.id),
        Command::IfUnchanged(_, step) => named(step),
        Command::Observe(id) => Some(id),
        Command::Restore(restore) => Some(&mut restore.intent.id),
        // It has the same given id in both stores.
        Command::Begin(_)
        | Command::Admit(_)
        | Command::Claim(_)
        | Command::Sweep(_)
        | Command::Clean(_)
        | Command::Prune(_)
        | Command::Purge(_)
        | Command::Put(_)
        | Command::Expect(..)
        | Command::Recover(_)
        | Command::Delete(_)
        | Command::Forget(_)
        | Command::ForgetFacts(_) => None,
    }
}

/// An answer without its numbers.
pub(super) fn unnumbered(reply: &Reply) -> Reply {
    let mut reply = reply.clone();
    let without = |intent: &mut Intent| {
        intent.seq = Seq(0);
        intent.last_fact = intent.last_fact.map(|_| FactSeq(0));
    };
    for answer in reply.iter_mut().flatten().flatten() {
        if let Answer::Claimed(intents) | Answer::Recovered(intents) = answer {
            intents.iter_mut().for_each(without);
        } else if let Answer::Observed(Some(intent)) | Answer::Begun(intent) = answer {
            without(intent);
        } else if let Answer::Purged { after, .. } = answer {
            *after = after.map(|_| Seq(0));
        } else if let Answer::FactsForgotten { after, .. } = answer {
            *after = after.map(|_| FactSeq(0));
        }
    }
    reply
}

/// A content with ranks instead of numbers. Numbers of removed rows that are still referenced count too.
pub(super) fn ranked(mut dump: Dump) -> Dump {
    let intents = dump.intents.iter().map(|intent| intent.seq.0);
    let named = dump.facts.iter().map(|fact| fact.intent.0);
    let mut records = dump.records.clone();
    let past = past_jobs(&mut records).map(|past| number(past));
    let seqs = ranks(intents.chain(named).chain(past));
    let facts = dump.facts.iter().map(|fact| fact.seq);
    let previous = dump.facts.iter().filter_map(|fact| fact.previous);
    let last = dump.intents.iter().filter_map(|intent| intent.last_fact);
    let fact_seqs = ranks(facts.chain(previous).chain(last).map(|seq| seq.0));
    let (seq, fact_seq) = (
        |seq: Seq| Seq(seqs[&seq.0]),
        |seq: FactSeq| FactSeq(fact_seqs[&seq.0]),
    );
    for intent in &mut dump.intents {
        intent.seq = seq(intent.seq);
        intent.last_fact = intent.last_fact.map(fact_seq);
    }
    for (lane, _) in &mut dump.lanes {
        *lane = seq(*lane);
    }
    for fact in &mut dump.facts {
        fact.seq = fact_seq(fact.seq);
        fact.intent = seq(fact.intent);
        fact.previous = fact.previous.map(fact_seq);
    }
    for past in past_jobs(&mut dump.records) {
        past.key.name = seq(Seq(number(past))).0.to_string();
    }
    for record in &mut dump.records {
        if record.key.kind == Kind::MeshHistory {
            record.value = without_number(&record.value);
        }
    }
    dump
}

/// The records of removed jobs, whose names are their numbers.
fn past_jobs(records: &mut [Record]) -> impl Iterator<Item = &mut Record> {
    let past = |record: &&mut Record| record.key.kind == Kind::PastJob;
    records.iter_mut().filter(past)
}

/// The history of a message without the number that its store gave it.
fn without_number(history: &str) -> String {
    let (before, number) = history
        .split_once(r#""seq":"#)
        .expect("a history has a number");
    let after = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}{after}")
}

fn number(past: &Record) -> u64 {
    past.key.name.parse().expect("it is named by a number")
}

fn ranks(numbers: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
    let sorted: BTreeSet<u64> = numbers.collect();
    sorted.into_iter().zip(1..).collect()
}
