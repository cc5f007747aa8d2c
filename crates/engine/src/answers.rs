//! Typed answers: each method executes one command and returns the answer that belongs to it, so that no caller unpacks
//! an [`Answer`].

use consign_kernel::command::{
    Admit, Admitted, Answer, Clean, Cleaned, Command, Extend, Forget, ForgetFacts, Recover, Settle,
    Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{FactSeq, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::record::Put;
use consign_kernel::state::State;

use crate::mesh_upkeep::PruneReport;
use crate::timekeeper::SweepReport;
use crate::{Engine, Error};

/// The state of a row after a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    pub state: State,
    /// When a row that is queued again is due.
    pub run_at: Micros,
}

/// An answer of the kernel as the type that its command promises.
pub trait TypedAnswer: Sized {
    /// `None` if the answer belongs to another command.
    fn from_answer(answer: Answer) -> Option<Self>;
}

macro_rules! typed {
    ($($type:ty: $($pattern:pat => $value:expr),+;)+) => {$(
        impl TypedAnswer for $type {
            fn from_answer(answer: Answer) -> Option<Self> {
                match answer {
                    $($pattern => Some($value),)+
                    _ => None,
                }
            }
        }
    )+};
}

typed! {
    Vec<Admitted>: Answer::Admitted(admitted) => admitted;
    Intent: Answer::Begun(row) => *row;
    Vec<Intent>: Answer::Claimed(rows) => rows, Answer::Recovered(rows) => rows;
    Option<Box<Intent>>: Answer::Observed(row) => row;
    Micros: Answer::Extended { until } => until;
    Settled: Answer::Settled { state, run_at } => Settled { state, run_at };
    SweepReport: Answer::Swept { rows, more } => SweepReport { rows, more };
    Cleaned: Answer::Cleaned(cleaned) => cleaned;
    (u32, Option<Seq>): Answer::Purged { rows, after } => (rows, after);
    PruneReport: Answer::Pruned { messages, others, more } => PruneReport { messages, others, more };
    bool: Answer::Deleted { existed } => existed;
    u64: Answer::Put { version } => version, Answer::Forgotten { rows } => rows;
    Option<FactSeq>: Answer::FactsForgotten { after, .. } => after;
}

pub(crate) fn typed<T: TypedAnswer>(answer: Answer) -> Result<T, Error> {
    let unexpected = || Error::Internal("the answer belongs to another command".to_owned());
    T::from_answer(answer).ok_or_else(unexpected)
}

impl Engine {
    pub(crate) async fn call<T: TypedAnswer>(&self, command: Command) -> Result<T, Error> {
        typed(self.apply(None, command).await?)
    }

    /// Admits intents, all or none, and returns a result for each.
    pub async fn admit(&self, admit: Admit) -> Result<Vec<Admitted>, Error> {
        self.call(Command::Admit(admit)).await
    }

    /// Leases one row by its id.
    pub async fn take(&self, take: Take) -> Result<Option<Intent>, Error> {
        let mut rows: Vec<Intent> = self.call(Command::Take(take)).await?;
        Ok(rows.pop())
    }

    /// Returns the new end of the lease.
    pub async fn extend(&self, extend: Extend) -> Result<Micros, Error> {
        self.call(Command::Extend(extend)).await
    }

    pub async fn settle(&self, settle: Settle) -> Result<Settled, Error> {
        self.call(Command::Settle(settle)).await
    }

    /// Writes a record and returns its new version.
    pub async fn put(&self, put: Put) -> Result<u64, Error> {
        self.call(Command::Put(put)).await
    }

    /// Writes a record if it has the expected version. Returns the new version, or `None` if it has another version.
    pub async fn put_if_unchanged(&self, put: Put) -> Result<Option<u64>, Error> {
        match self.put(put).await {
            Ok(version) => Ok(Some(version)),
            Err(Error::Refused(Refusal::VersionMismatch)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Releases all leases of earlier starts of a node, in pieces of `recover.limit`, and returns the rows.
    pub async fn recover(&self, recover: &Recover) -> Result<Vec<Intent>, Error> {
        let mut recovered = Vec::new();
        loop {
            let piece = Command::Recover(recover.clone());
            let rows: Vec<Intent> = self.call(piece).await?;
            if rows.is_empty() {
                return Ok(recovered);
            }
            recovered.extend(rows);
        }
    }

    /// One piece of a cleanup pass.
    pub async fn clean(&self, clean: Clean) -> Result<Cleaned, Error> {
        self.call(Command::Clean(clean)).await
    }

    /// Removes one piece and returns the number of removed entries.
    pub async fn forget_piece(&self, forget: Forget) -> Result<u64, Error> {
        self.call(Command::Forget(forget)).await
    }

    /// Removes one piece of old facts. Returns where the next piece starts, if there may be more.
    pub async fn forget_facts(&self, forget: ForgetFacts) -> Result<Option<FactSeq>, Error> {
        self.call(Command::ForgetFacts(forget)).await
    }
}
