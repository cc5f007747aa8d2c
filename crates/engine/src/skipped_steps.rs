//! Steps that a node skips while its claims are paused.
//!
//! A draining node claims nothing: its dispatcher, its sweep and its workers find nothing to do, and other nodes take
//! over. A node with a wrong clock also skips every step that depends on the time, because what has expired by its
//! clock may not have expired. All other steps are executed: settlements, extensions, admissions and commands on a
//! named row.
//! Invariant: a skipped step returns an empty result, never an error.

use consign_kernel::command::{Answer, Cleaned, Command, Forget};
use consign_kernel::error::Refusal;
use consign_store::Error as StoreError;

use crate::Error;

/// Steps that were removed from a request, with their results and positions.
#[derive(Debug)]
pub(crate) struct SkippedSteps(Vec<(usize, Answer)>);

impl SkippedSteps {
    /// For a node whose claims are paused; `wrong_clock` says that its clock is wrong.
    pub(crate) fn remove_from(steps: &mut Vec<Command>, wrong_clock: bool) -> Result<Self, Error> {
        if wrong_clock && steps.iter().any(|step| matches!(step, Command::Take(_))) {
            // The caller names a row, so an empty result would be wrong.
            let reason = "this machine's clock differs from the database's, so this node cannot decide which leases have expired";
            return Err(StoreError::Unavailable(reason.to_owned()).into());
        }
        let mut skipped = Vec::new();
        let mut index = 0;
        steps.retain(|step| {
            let answer = skipped_answer(step, wrong_clock);
            let stays = answer.is_none();
            skipped.extend(answer.map(|answer| (index, answer)));
            index += 1;
            stays
        });
        Ok(Self(skipped))
    }

    pub(crate) fn insert_into(self, answers: &mut Vec<Result<Answer, Refusal>>) {
        for (index, answer) in self.0 {
            answers.insert(index.min(answers.len()), Ok(answer));
        }
    }
}

/// The result of a step that is skipped now, or `None` for a step that is executed.
fn skipped_answer(step: &Command, wrong_clock: bool) -> Option<Answer> {
    let answer = match step {
        // A claim also processes expired leases.
        Command::Claim(_) => return Some(Answer::Claimed(Vec::new())),
        Command::Sweep(_) => Answer::Swept {
            rows: 0,
            more: false,
        },
        Command::Clean(_) => Answer::Cleaned(Cleaned::default()),
        Command::Prune(_) => Answer::Pruned {
            messages: 0,
            others: 0,
            more: false,
        },
        Command::Forget(
            Forget::Once { .. } | Forget::OnceEnding { .. } | Forget::Records { .. },
        ) => Answer::Forgotten { rows: 0 },
        Command::ForgetFacts(_) => Answer::FactsForgotten {
            rows: 0,
            after: None,
        },
        Command::Forget(
            Forget::OnceOf { .. }
            | Forget::OnceOfFace { .. }
            | Forget::LostMessages { .. }
            | Forget::AllRecords { .. },
        )
        | Command::Admit(_)
        | Command::Begin(_)
        | Command::Take(_)
        | Command::Extend(_)
        | Command::Settle(_)
        | Command::Advance(_)
        | Command::Cancel(_)
        | Command::Requeue(_)
        | Command::CancelUnfinished(_)
        | Command::RequeueUnfinished(_)
        | Command::Remove(_)
        | Command::IfUnchanged(..)
        | Command::Observe(_)
        | Command::Recover(_)
        | Command::Purge(_)
        | Command::Put(_)
        | Command::Expect(..)
        | Command::Delete(_)
        | Command::Restore(_) => return None,
    };
    wrong_clock.then_some(answer)
}
