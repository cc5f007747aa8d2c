//! The status of a job, in the words of the protocol.

use consign_engine::Outline;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};
use serde::{Deserialize, Serialize};

/// What a job is, or how an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Queued,
    Running,
    Succeeded,
    Failed,
    TimedOut,
    Dead,
}

impl JobStatus {
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Dead,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Dead => "dead",
        }
    }

    /// The status that a filter names; some have an alias.
    pub fn parse(text: &str) -> Option<Self> {
        let word = match text {
            "pending" => "queued",
            "ok" => "succeeded",
            "error" => "failed",
            other => other,
        };
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// The state of the jobs that have this status.
    pub const fn state(self) -> State {
        match self {
            Self::Queued => State::Queued,
            Self::Running => State::Dispatched,
            Self::Succeeded => State::Acked,
            Self::Failed | Self::TimedOut => State::Failed,
            Self::Dead => State::DeadLetter,
        }
    }

    /// `None` for a state that no job has.
    pub fn of_state(state: State, cause: Cause) -> Option<Self> {
        let word = ProfileId::Automation.profile().word(state, cause)?;
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    pub fn of(job: &Outline) -> Self {
        Self::of_state(job.state, job.cause).unwrap_or(Self::Queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_own_name_or_its_second_one_du_105() {
        for (text, status) in [
            ("queued", JobStatus::Queued),
            ("pending", JobStatus::Queued),
            ("ok", JobStatus::Succeeded),
            ("error", JobStatus::Failed),
            ("timed_out", JobStatus::TimedOut),
            ("dead", JobStatus::Dead),
        ] {
            assert_eq!(JobStatus::parse(text), Some(status));
        }
        for text in ["", "Queued", "completed", "queued "] {
            assert_eq!(JobStatus::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_words_are_those_of_the_profile_and_those_that_are_stored() {
        for status in JobStatus::ALL {
            let cause = if status == JobStatus::TimedOut {
                Cause::TimedOut
            } else {
                Cause::WorkerFailed
            };
            assert_eq!(JobStatus::of_state(status.state(), cause), Some(status));
            let stored = serde_json::to_value(status).unwrap();
            assert_eq!(stored, status.as_str());
        }
        assert_eq!(JobStatus::of_state(State::Received, Cause::Completed), None);
    }
}
