//! What a node that is off duty leaves undone, whoever in this process asks for it.
//!
//! A node that drains claims nothing: its dispatcher, its sweep and its workers find nothing to do, and others find what it
//! leaves. One whose clock is wrong does nothing either that rests on what time it is: what is over by its clock may not be over.
//! Everything else goes on. What runs is kept and settled, what is asked for by its name is done, and what comes is taken in.
//! Invariant: whoever asks for something that is left undone is told that there was nothing to do, never that it failed.

use consign_kernel::command::{Answer, Cleaned, Command, Forget};
use consign_kernel::error::Refusal;
use consign_store::Error as StoreError;

use crate::Error;

/// Steps that were taken out of a request, with their answers and where these belong.
#[derive(Debug)]
pub(crate) struct LeftUndone(Vec<(usize, Answer)>);

impl LeftUndone {
    /// Of a node that is off duty; `wrong_clock` says that it does not know what time it is.
    pub(crate) fn take_out(steps: &mut Vec<Command>, wrong_clock: bool) -> Result<Self, Error> {
        if wrong_clock && steps.iter().any(|step| matches!(step, Command::Take(_))) {
            // It is wanted by its name, so "nothing was there" would be believed.
            let untold = "this machine's clock differs from the database's, so nobody knows here whose leases are over";
            return Err(StoreError::Unavailable(untold.to_owned()).into());
        }
        let mut left = Vec::new();
        let mut index = 0;
        steps.retain(|step| {
            let undone = undone(step, wrong_clock);
            let stays = undone.is_none();
            left.extend(undone.map(|answer| (index, answer)));
            index += 1;
            stays
        });
        Ok(Self(left))
    }

    pub(crate) fn put_in(self, answers: &mut Vec<Result<Answer, Refusal>>) {
        for (index, answer) in self.0 {
            answers.insert(index.min(answers.len()), Ok(answer));
        }
    }
}

/// The answer to a step that is not done now.
fn undone(step: &Command, wrong_clock: bool) -> Option<Answer> {
    let answer = match step {
        // It lets time act as well.
        Command::Claim(_) => return Some(Answer::Claimed(Vec::new())),
        Command::Sweep(_) => Answer::Swept {
            rows: 0,
            more: false,
        },
        Command::Clean(_) => Answer::Cleaned(Cleaned::default()),
        Command::Forget(Forget::Once { .. } | Forget::Records { .. }) => {
            Answer::Forgotten { rows: 0 }
        }
        Command::ForgetFacts(_) => Answer::FactsForgotten {
            rows: 0,
            after: None,
        },
        Command::Forget(
            Forget::OnceOf { .. } | Forget::OnceOfFace { .. } | Forget::AllRecords { .. },
        )
        | Command::Admit(_)
        | Command::Begin(_)
        | Command::Take(_)
        | Command::Extend(_)
        | Command::Settle(_)
        | Command::Advance(_)
        | Command::Cancel(_)
        | Command::Requeue(_)
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
