//! The limit of open files: raised for the server, restored for its plugins.
//!
//! The limit is a property of the process, so the original value is a process-wide static. Programs may misbehave with a high
//! limit (`select`, or closing every possible descriptor), so plugins get the original one.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use super::run::ProcessSpec;

/// The original limit, if it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard limit; returns the number of files that may be open now.
pub fn raise() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Restores the original limit for a plugin that was just started, unless its confinement sets one.
pub(super) fn restore_limit(job: &ProcessSpec, pid: Option<u32>) {
    let (Some(before), Some(pid)) = (BEFORE.get(), pid) else {
        return;
    };
    let sets_its_own = |launcher: &super::run::Launcher| {
        launcher
            .arguments
            .iter()
            .any(|argument| argument == "--open-files")
    };
    if job.launcher.as_ref().is_some_and(sets_its_own) {
        return;
    }
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let limit = Rlimit {
        current: before.current,
        maximum: before.maximum,
    };
    if let Err(error) = prlimit(Some(pid), Resource::Nofile, limit) {
        tracing::debug!(%error, "a plugin keeps the server's limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_the_soft_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: before.maximum.map(|most| most.min(64)),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, low).unwrap();
        assert_eq!(raise(), before.maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        let remembered = BEFORE.get().map(|limit| limit.current);
        assert_eq!(remembered, Some(low.current));
    }
}
