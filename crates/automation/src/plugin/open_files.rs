//! The number of files this process may have open: raised for the server, given back to its plugins.
//!
//! A limit belongs to the whole process, so what it was is remembered for the whole process too. Programs that know only the
//! usual limit may misbehave with a higher one (`select`, or closing every number up to it), hence plugins get the old one.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use super::run::ProcessSpec;

/// The limit of before, if it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one; gives how many files may be open now.
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

/// Gives a plugin that was just started the limit of before, unless its confinement sets one.
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
