//! Time that passes only when a test says so.

use std::sync::atomic::{AtomicI64, Ordering};

use consign_engine::{Clock, WallClock};
use consign_kernel::ids::{Micros, SECOND_US};

/// Engine time and wall clock in one.
#[derive(Debug)]
pub struct SimClock(AtomicI64);

impl Default for SimClock {
    fn default() -> Self {
        Self(AtomicI64::new(1_800_000_000 * SECOND_US))
    }
}

impl SimClock {
    pub fn advance_s(&self, seconds: i64) {
        self.advance_us(seconds * SECOND_US);
    }

    pub fn advance_us(&self, us: i64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    pub fn unix_s(&self) -> i64 {
        self.0.load(Ordering::SeqCst) / SECOND_US
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        Micros(self.0.load(Ordering::SeqCst))
    }
}

impl WallClock for SimClock {
    fn wall(&self) -> Micros {
        self.now()
    }
}
