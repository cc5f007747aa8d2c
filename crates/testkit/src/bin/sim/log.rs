//! The event log of a simulation: the last lines for the analysis of a failure, and a digest of all lines.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use consign_kernel::ids::Micros;

const LINES_KEPT: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct EventLog {
    began: Option<Micros>,
    last: VecDeque<String>,
    // Its keys are constants, so the same lines give the same digest in every process.
    hasher: DefaultHasher,
}

impl EventLog {
    pub(crate) fn line(&mut self, now: Micros, text: &str) {
        let began = *self.began.get_or_insert(now);
        let since_ms = (now.0 - began.0) / 1_000;
        let line = format!("{:>9}.{:03} s  {text}", since_ms / 1_000, since_ms % 1_000);
        self.hasher.write(line.as_bytes());
        if self.last.len() == LINES_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn tail(self) -> Vec<String> {
        self.last.into()
    }
}
