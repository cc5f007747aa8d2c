//! Engine time: the wall clock at start plus monotonic time.
//!
//! Invariant: it never goes back, and never before the last instant the store knows. A jump of the wall clock is followed
//! slowly, so that a day's jump does not end every lease at once. Where many nodes share a database, its clock is the wall
//! clock of all of them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use consign_kernel::ids::Micros;
use consign_kernel::plant::{self, Plant};
use consign_store::Clock;

/// How much of a difference to the wall clock is made up for per second: one percent.
const SLEW_US_PER_S: i64 = 10_000;

/// A difference that is not worth a jump.
const CATCH_UP_US: i64 = 500_000;

/// What the wall clock says, in microseconds since 1970. Signature windows use it; leases never do.
pub trait WallClock: Send + Sync + 'static {
    fn wall(&self) -> Micros;
}

/// Where time comes from: the system, or a simulation.
pub trait TimeSource: WallClock {
    /// Never goes back, whatever becomes of the wall clock.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemTimes {
    started: Instant,
    /// How far the clock that counts is ahead of the one of this machine.
    ahead_us: AtomicI64,
}

impl SystemTimes {
    /// With a wall clock that is so far ahead of this machine's.
    pub fn ahead(ahead_us: i64) -> Self {
        Self {
            started: Instant::now(),
            ahead_us: AtomicI64::new(ahead_us),
        }
    }

    /// What the wall clock of this machine itself says.
    pub fn own_wall() -> Micros {
        system_time()
    }
}

impl TimeSource for SystemTimes {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

impl WallClock for SystemTimes {
    fn wall(&self) -> Micros {
        system_time().plus(self.ahead_us.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub struct EngineClock<S = SystemTimes> {
    source: S,
    /// What the monotonic clock said then.
    started: Duration,
    start: Micros,
    /// Made up for so far.
    slewed_us: AtomicI64,
    /// When the last step was made, in seconds since start.
    stepped_s: AtomicI64,
    latest: AtomicI64,
}

impl EngineClock {
    /// Begins at the larger of the wall clock and the last stored time.
    pub fn start(last_stored: Option<Micros>) -> Self {
        Self::over(SystemTimes::ahead(0), last_stored)
    }

    /// From now on the wall clock that is followed is so far ahead of this machine's.
    pub fn wall_is_ahead(&self, ahead_us: i64) {
        self.source.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// Makes up at once for time that the monotonic clock did not see pass, as when the machine slept. Only forward: time
    /// that was given out is not taken back.
    pub fn catch_up(&self) {
        let behind_us = self.source.wall().0 - self.now().0;
        if behind_us > CATCH_UP_US {
            self.slewed_us.fetch_add(behind_us, Ordering::Relaxed);
        }
    }
}

impl<S: TimeSource> EngineClock<S> {
    /// The same over clocks that somebody else made.
    pub fn over(source: S, last_stored: Option<Micros>) -> Self {
        let start = source.wall().max(last_stored.unwrap_or_default());
        Self {
            started: source.monotonic(),
            source,
            start,
            slewed_us: AtomicI64::new(0),
            stepped_s: AtomicI64::new(0),
            latest: AtomicI64::new(start.0),
        }
    }

    /// Moves engine time a little towards the wall clock, at most once a second.
    pub fn follow(&self) {
        self.follow_to(self.source.wall(), self.elapsed());
    }

    fn elapsed(&self) -> Duration {
        self.source.monotonic().saturating_sub(self.started)
    }

    fn follow_to(&self, wall: Micros, elapsed: Duration) {
        let second = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        let last = self.stepped_s.swap(second, Ordering::Relaxed);
        let allowed_us = (second - last).clamp(0, 10) * SLEW_US_PER_S;
        let ahead_us = wall.0 - self.at(elapsed).0;
        self.slewed_us
            .fetch_add(ahead_us.clamp(-allowed_us, allowed_us), Ordering::Relaxed);
    }

    fn at(&self, elapsed: Duration) -> Micros {
        let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
        self.start
            .plus(elapsed_us)
            .plus(self.slewed_us.load(Ordering::Relaxed))
    }
}

impl<S: TimeSource> Clock for EngineClock<S> {
    fn now(&self) -> Micros {
        if plant::on(Plant::WallClockTime) {
            return self.source.wall();
        }
        let now = self.at(self.elapsed()).0;
        Micros(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

impl<S: TimeSource> WallClock for EngineClock<S> {
    fn wall(&self) -> Micros {
        self.source.wall()
    }
}

fn system_time() -> Micros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use consign_kernel::ids::DAY_US;

    use super::*;

    #[test]
    fn a_day_s_jump_of_the_wall_clock_moves_engine_time_by_one_percent() {
        for jump_us in [DAY_US, -DAY_US] {
            let clock = EngineClock::start(None);
            let before = clock.at(Duration::ZERO);
            for second in 1..=60 {
                clock.follow_to(before.plus(jump_us), Duration::from_secs(second));
            }
            let moved_us = clock.at(Duration::from_mins(1)).0 - before.0;
            assert!(
                (moved_us - 60_000_000).abs() <= 600_000,
                "moved {moved_us} µs in a minute"
            );
        }
    }

    #[test]
    fn time_never_goes_back_even_while_it_is_slowed_down() {
        let clock = EngineClock::start(None);
        let before = clock.now();
        clock.slewed_us.store(-5_000_000, Ordering::Relaxed);
        assert!(clock.now() >= before);
    }

    #[test]
    fn a_restart_begins_at_the_last_stored_time_if_the_wall_clock_lies_behind() {
        let stored = system_time().plus(DAY_US);
        assert!(EngineClock::start(Some(stored)).now() >= stored);
        let stored = system_time().minus(DAY_US);
        assert!(EngineClock::start(Some(stored)).now() > stored.plus(DAY_US - 1_000_000));
    }
}
