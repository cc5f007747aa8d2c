//! A unit of work: steps that happen in one commit.
//!
//! Ordering: the unit sorts its steps into expectations of record versions, steps that can be refused, record writes,
//! admissions, and claims; within a group they keep the order in which they were added. The first refusal ends the
//! commit: no later step happens, and earlier steps stay. So the steps happen all or none if at most one of them can be
//! refused after the expectations, or if the success of one implies that of the next, as with two steps of one leased row.
//! An admission with a once-key can be refused too, so it must not share a unit with writes. Claims come last, because
//! they may take what the other steps release.

use std::marker::PhantomData;

use consign_kernel::command::{
    Admit, Admitted, Answer, Begin, Claim, Command, Forget, NewIntent, OnRefusal, Settlement, Take,
};
use consign_kernel::ids::Micros;
use consign_kernel::intent::Intent;
use consign_kernel::record::{Key, Put};
use serde::Serialize;

use crate::answers::{Settled, TypedAnswer, typed};
use crate::lease::Lease;
use crate::records::{Versioned, new_put};
use crate::{Engine, Error};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Expectation,
    Refusable,
    Write,
    Admission,
    Claim,
}

#[derive(Clone, Debug, Default)]
pub struct UnitOfWork {
    steps: Vec<(Group, Command)>,
}

/// Names a step of a unit of work, for its answer in [`Committed::get`].
#[derive(Debug)]
pub struct Handle<T> {
    step: usize,
    answer: PhantomData<fn() -> T>,
}

/// The answers of a unit of work.
#[derive(Debug)]
pub struct Committed {
    answers: Vec<Option<Answer>>,
}

impl Committed {
    /// The answer of a step of this unit.
    #[expect(clippy::needless_pass_by_value, reason = "an answer can be taken once")]
    pub fn get<T: TypedAnswer>(&mut self, handle: Handle<T>) -> Result<T, Error> {
        let answer = self.answers.get_mut(handle.step).and_then(Option::take);
        typed(answer.ok_or_else(|| Error::Internal("a step without an answer".to_owned()))?)
    }
}

impl UnitOfWork {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn push<T>(&mut self, group: Group, command: Command) -> Handle<T> {
        self.steps.push((group, command));
        Handle {
            step: self.steps.len() - 1,
            answer: PhantomData,
        }
    }

    /// Refuses the commit unless the record has this version; zero means that it must not exist.
    pub fn expect(&mut self, key: Key, version: u64) {
        self.push::<()>(Group::Expectation, Command::Expect(key, version));
    }

    /// Refuses the commit if the record was changed since it was read.
    pub fn expect_unchanged<T>(&mut self, record: &Versioned<T>) {
        self.expect(record.key.clone(), record.version);
    }

    /// A command that may be refused and then refuses the whole unit.
    pub fn require(&mut self, command: Command) {
        self.push::<()>(Group::Refusable, command);
    }

    /// Creates a row of a profile that does not begin in a queue.
    pub fn begin(&mut self, begin: Begin) -> Handle<Intent> {
        self.push(Group::Refusable, Command::Begin(Box::new(begin)))
    }

    /// Leases one row by its id.
    pub fn take(&mut self, take: Take) -> Handle<Vec<Intent>> {
        self.push(Group::Refusable, Command::Take(take))
    }

    pub fn extend(&mut self, lease: &Lease, lease_us: i64) {
        self.require(Command::Extend(lease.extend(lease_us)));
    }

    pub fn settle(&mut self, lease: &Lease, how: Settlement) -> Handle<Settled> {
        self.push(Group::Refusable, Command::Settle(lease.settle(how)))
    }

    /// Writes a record, whatever its version.
    pub fn put(&mut self, key: Key, value: &impl Serialize) {
        self.write(new_put(key, value));
    }

    /// The same for a record that expires.
    pub fn put_until(&mut self, key: Key, value: &impl Serialize, expires_at: Micros) {
        self.write(Put {
            expires_at: Some(expires_at),
            ..new_put(key, value)
        });
    }

    fn write(&mut self, put: Put) {
        self.push::<()>(Group::Write, Command::Put(put));
    }

    /// Writes a record if it has the version that was read.
    pub fn replace<T: Serialize>(&mut self, record: &Versioned<T>) {
        self.expect_unchanged(record);
        self.write(Put {
            expect: None,
            ..record.put()
        });
    }

    /// Answers whether the record existed.
    pub fn delete(&mut self, key: Key) -> Handle<bool> {
        self.push(Group::Write, Command::Delete(key))
    }

    /// Removes entries; the number of them is the answer.
    pub fn forget(&mut self, forget: Forget) -> Handle<u64> {
        self.push(Group::Write, Command::Forget(forget))
    }

    /// Admits intents, all or none.
    pub fn admit(&mut self, items: Vec<NewIntent>) -> Handle<Vec<Admitted>> {
        self.push(Group::Admission, Command::Admit(Admit { items, cap: None }))
    }

    pub fn claim(&mut self, claim: Claim) -> Handle<Vec<Intent>> {
        self.push(Group::Claim, Command::Claim(claim))
    }
}

impl Engine {
    /// Commits a unit of work. The first refusal is the result; the steps behind it do not happen.
    pub async fn commit(&self, unit: UnitOfWork) -> Result<Committed, Error> {
        let mut order: Vec<usize> = (0..unit.steps.len()).collect();
        // The sort is stable.
        order.sort_by_key(|step| unit.steps[*step].0);
        let mut steps = unit.steps;
        steps.sort_by_key(|(group, _)| *group);
        let commands = steps.into_iter().map(|(_, command)| command).collect();
        let answers = self.run(None, commands, OnRefusal::Stop).await?;
        let mut committed = Committed {
            answers: vec![None; order.len()],
        };
        for (step, answer) in order.into_iter().zip(answers) {
            committed.answers[step] = Some(answer?);
        }
        Ok(committed)
    }
}
