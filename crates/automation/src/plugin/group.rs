//! The process group of a plugin: the process and all that it started and did not send away.
//!
//! While a [`Group`] lives its members may; when it is dropped they are killed, on whatever path that happens.

use consign_kernel::plant::{self, Plant};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[derive(Debug)]
pub(super) struct Group {
    leader: Option<Pid>,
}

impl Group {
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

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
