//! The process group of a plugin: the process and all that it started and did not send away.
//!
//! While a [`ProcessGroup`] lives its members may; when it is dropped they are killed, on whatever path that happens.

use std::time::Duration;

use consign_kernel::plant::{self, Plant};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::time::sleep;

/// Numbers are given out in turn, so none comes back between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct ProcessGroup {
    leader: Option<Pid>,
}

impl ProcessGroup {
    /// Of a child that was started as the leader of its own group.
    pub(super) fn of(leader: Option<u32>) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
        }
    }

    /// Asks the members to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ready when no member is left. Those that the leader started may need longer to end than it does.
    pub(super) async fn is_empty(&self) {
        while let Some(leader) = self.leader
            && test_kill_process_group(leader) != Err(Errno::SRCH)
        {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Kills what is left, once: later the number of the group may be that of strangers.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // It fails if nobody is left, which is what we want.
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
