//! Simulated time, which only a test advances.

use std::sync::atomic::{AtomicI64, Ordering};

use consign_engine::{Clock, WallClock};
use consign_kernel::ids::{Micros, SECOND_US};

/// Engine time, and a wall clock that shows the same unless a test sets it.
#[derive(Debug)]
pub struct SimClock {
    at: AtomicI64,
    wall_ahead_us: AtomicI64,
}

impl Default for SimClock {
    fn default() -> Self {
        Self {
            at: AtomicI64::new(1_800_000_000 * SECOND_US),
            wall_ahead_us: AtomicI64::new(0),
        }
    }
}

impl SimClock {
    pub fn advance_s(&self, seconds: i64) {
        self.advance_us(seconds * SECOND_US);
    }

    pub fn advance_us(&self, us: i64) {
        self.at.fetch_add(us, Ordering::SeqCst);
    }

    /// Sets the wall clock this many seconds ahead of engine time; a negative number sets it behind.
    pub fn set_wall_ahead_s(&self, seconds: i64) {
        self.wall_ahead_us
            .store(seconds * SECOND_US, Ordering::SeqCst);
    }

    pub fn unix_s(&self) -> i64 {
        self.at.load(Ordering::SeqCst) / SECOND_US
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        Micros(self.at.load(Ordering::SeqCst))
    }

    fn time_of_day(&self) -> Micros {
        self.now().plus(self.wall_ahead_us.load(Ordering::SeqCst))
    }
}

impl WallClock for SimClock {
    fn wall(&self) -> Micros {
        self.time_of_day()
    }
}
