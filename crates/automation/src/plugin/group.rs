//! The process group of a plugin: the process and all descendants that did not leave the group.
//!
//! Dropping a [`ProcessGroup`] kills its members, on every path.

use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::time::sleep;

/// Process ids are assigned in sequence, so none is reused between two polls.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct ProcessGroup {
    leader: Option<Pid>,
}

impl ProcessGroup {
    /// The group of a child that was started as group leader.
    pub fn of(leader: Option<u32>) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
        }
    }

    /// Sends SIGTERM to the members.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Completes when no member is left. Descendants may need longer than the leader.
    pub async fn is_empty(&self) {
        while let Some(leader) = self.leader
            && test_kill_process_group(leader) != Err(Errno::SRCH)
        {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Kills the remaining members, once: later the group id may belong to other processes.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // It fails if no process is left, which is the goal.
            let _ = if plant::on(Plant::SignalLeaderOnly) {
                kill_process(leader, signal)
            } else {
                kill_process_group(leader, signal)
            };
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
