//! Hooks: pipelines that start when a job ends.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    Completed,
    Failed,
    TimedOut,
}

/// The final end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    Succeeded,
    Failed,
    TimedOut,
    Dead,
}

impl Hook {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "job.completed",
            Self::Failed => "job.failed",
            Self::TimedOut => "job.timed_out",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Completed, Self::Failed, Self::TimedOut]
            .into_iter()
            .find(|hook| hook.as_str() == text)
    }

    /// The signals of a finished job: `job.completed` for every end, and the specific one. Only jobs that no event created, of
    /// plugins with `notify_on_complete`, send signals.
    pub fn signals(end: JobEnd, notify_on_complete: bool, has_context: bool) -> &'static [Self] {
        if !notify_on_complete || has_context {
            return &[];
        }
        match end {
            JobEnd::Succeeded => &[Self::Completed],
            JobEnd::Failed | JobEnd::Dead => &[Self::Completed, Self::Failed],
            JobEnd::TimedOut => &[Self::Completed, Self::TimedOut],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_jobs_of_plugins_that_ask_give_signals_du_097() {
        let signals = |end| Hook::signals(end, true, false);
        assert_eq!(signals(JobEnd::Succeeded), [Hook::Completed]);
        assert_eq!(signals(JobEnd::Failed), [Hook::Completed, Hook::Failed]);
        assert_eq!(signals(JobEnd::Dead), [Hook::Completed, Hook::Failed]);
        assert_eq!(signals(JobEnd::TimedOut), [Hook::Completed, Hook::TimedOut]);
        assert_eq!(Hook::signals(JobEnd::Failed, false, false), []);
        assert_eq!(Hook::signals(JobEnd::Failed, true, true), []);
    }
}
