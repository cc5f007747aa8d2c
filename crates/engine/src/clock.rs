//! Engine time: the wall clock at start plus monotonic time, plus the time that the machine was suspended.
//!
//! Invariant: engine time never goes back, and never before the last instant in the store. It follows a jump of the
//! wall clock slowly, so that a jump of a day does not end every lease at once. A suspend is not a jump: that time
//! has passed, so it is added at once. Where many nodes share a database, the database's clock is the wall clock of
//! all of them.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::plant::{self, Plant};
use consign_store::Clock;
use rustix::time::ClockId;

/// How much of a difference to the wall clock is corrected per second: one percent.
const SLEW_US_PER_S: i64 = 10_000;

/// Smaller differences are corrected slowly instead of at once.
const CATCH_UP_MIN_US: i64 = 500_000;

/// A difference to the wall clock that is logged for the operator.
const WALL_DIFFERENCE_LOGGED_US: i64 = 60 * SECOND_US;

/// The wall clock, in microseconds since 1970. Signature windows use it; leases never do.
pub trait WallClock: Send + Sync + 'static {
    fn wall(&self) -> Micros;
}

/// The source of time: the system, or a simulation.
pub trait TimeSource: WallClock {
    /// Never goes back, whatever happens to the wall clock.
    fn monotonic(&self) -> Duration;

    /// How long the machine was suspended so far. The monotonic clock does not count that time.
    fn asleep(&self) -> Duration {
        Duration::ZERO
    }
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemTimes {
    started: Instant,
    /// How far the reference clock is ahead of this machine's clock.
    ahead_us: AtomicI64,
}

impl SystemTimes {
    /// The wall clock is this machine's clock plus `ahead_us`.
    pub fn ahead(ahead_us: i64) -> Self {
        Self {
            started: Instant::now(),
            ahead_us: AtomicI64::new(ahead_us),
        }
    }

    /// The wall clock of this machine, without the offset.
    pub fn own_wall() -> Micros {
        system_time()
    }
}

impl TimeSource for SystemTimes {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn asleep(&self) -> Duration {
        let read = |id| {
            let now = rustix::time::clock_gettime(id);
            let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
            Duration::from_secs(seconds) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
        };
        // Ordering: time between the two readings must not count as suspend.
        let awake = read(ClockId::Monotonic);
        read(ClockId::Boottime).saturating_sub(awake)
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
    /// The monotonic clock at start.
    started: Duration,
    start: Micros,
    /// The correction so far.
    slewed_us: AtomicI64,
    /// When the last correction was made, in seconds since start.
    stepped_s: AtomicI64,
    latest: AtomicI64,
    /// Suspended time that was added so far.
    slept_us: AtomicI64,
    /// Engine time and the wall clock differ by a lot, and this was logged.
    wall_differs: AtomicBool,
    /// The reference clock is a database's, not this machine's.
    shared: AtomicBool,
}

impl EngineClock {
    /// Starts at the larger of the wall clock and the last stored time.
    pub fn start(last_stored: Option<Micros>) -> Self {
        Self::over(SystemTimes::ahead(0), last_stored)
    }

    /// Sets how far the reference clock is ahead of this machine's clock.
    pub fn wall_is_ahead(&self, ahead_us: i64) {
        self.shared.store(true, Ordering::Relaxed);
        self.source.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// Adds at once the time that the monotonic clock did not count, such as a suspend. Only forward: engine time
    /// never goes back.
    pub fn catch_up(&self) {
        let behind_us = self.source.wall().0 - self.now().0;
        if behind_us > CATCH_UP_MIN_US {
            self.slewed_us.fetch_add(behind_us, Ordering::Relaxed);
        }
    }
}

impl<S: TimeSource> EngineClock<S> {
    /// The same with the given clocks.
    pub fn over(source: S, last_stored: Option<Micros>) -> Self {
        let start = source.wall().max(last_stored.unwrap_or_default());
        let asleep_us = micros(source.asleep());
        Self {
            started: source.monotonic(),
            source,
            start,
            slewed_us: AtomicI64::new(0),
            stepped_s: AtomicI64::new(0),
            latest: AtomicI64::new(start.0),
            slept_us: AtomicI64::new(asleep_us),
            wall_differs: AtomicBool::new(false),
            shared: AtomicBool::new(false),
        }
    }

    /// Adds suspended time, and moves engine time a little towards the wall clock, at most once a second.
    pub fn follow(&self) {
        self.add_sleep();
        let wall = self.source.wall();
        self.follow_to(wall, self.elapsed());
        self.log_wall_difference(wall.0 - self.at(self.elapsed()).0);
    }

    fn add_sleep(&self) {
        let asleep_us = micros(self.source.asleep());
        let slept_us = asleep_us - self.slept_us.load(Ordering::Relaxed);
        if slept_us <= CATCH_UP_MIN_US {
            return;
        }
        self.slept_us.store(asleep_us, Ordering::Relaxed);
        // With a shared database the time may have been added already.
        let behind_us = self.source.wall().0 - self.at(self.elapsed()).0;
        let made_up_us = slept_us.min(behind_us).max(0);
        self.slewed_us.fetch_add(made_up_us, Ordering::Relaxed);
        let slept_s = slept_us / SECOND_US;
        tracing::info!(
            slept_s,
            "the machine was suspended; engine time includes the suspend"
        );
    }

    /// Logs once that the wall clock was set, and once that engine time has caught up.
    fn log_wall_difference(&self, wall_ahead_us: i64) {
        let wall_differs = wall_ahead_us.abs() > WALL_DIFFERENCE_LOGGED_US;
        if self.wall_differs.swap(wall_differs, Ordering::Relaxed) == wall_differs {
            return;
        }
        let wall_ahead_s = wall_ahead_us / SECOND_US;
        if wall_differs && wall_ahead_us > 0 {
            tracing::warn!(
                wall_ahead_s,
                "the wall clock is ahead of engine time; engine time follows by one percent, so that no lease ends early, and at \
                 once after a restart of the server"
            );
        } else if wall_differs {
            tracing::warn!(
                wall_ahead_s,
                "the wall clock is behind engine time, which slows down by one percent and never goes back; `consign store check \
                 --repair` corrects the ledger of a stopped server"
            );
        } else {
            tracing::info!("engine time has caught up with the wall clock");
        }
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
        self.start
            .plus(micros(elapsed))
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

    /// On a ledger without other nodes: the wall clock of this machine. Where nodes share a database, engine time
    /// stays within two seconds of the database's clock. The wall clock is used only where it is ahead of engine
    /// time, because after a suspend this machine's clock is right first.
    fn time_of_day(&self) -> Micros {
        let wall = self.source.wall();
        if self.shared.load(Ordering::Relaxed) {
            return wall.max(self.now());
        }
        wall
    }
}

impl<S: TimeSource> WallClock for EngineClock<S> {
    fn wall(&self) -> Micros {
        self.source.wall()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn system_time() -> Micros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use consign_kernel::ids::DAY_US;

    use super::*;

    /// The clocks of a machine that can be suspended and whose wall clock can be set.
    #[derive(Clone, Default)]
    struct Machine(Arc<[AtomicI64; 3]>);

    impl Machine {
        /// Advances the clocks: running, suspended, and the wall clock alone.
        fn pass(&self, awake_us: i64, asleep_us: i64, set_us: i64) {
            for (clock, us) in self.0.iter().zip([awake_us, asleep_us, set_us]) {
                clock.fetch_add(us, Ordering::Relaxed);
            }
        }

        fn read(&self, clock: usize) -> i64 {
            self.0[clock].load(Ordering::Relaxed)
        }
    }

    impl WallClock for Machine {
        fn wall(&self) -> Micros {
            Micros(DAY_US + (0..3).map(|clock| self.read(clock)).sum::<i64>())
        }
    }

    impl TimeSource for Machine {
        fn monotonic(&self) -> Duration {
            Duration::from_micros(self.read(0).unsigned_abs())
        }

        fn asleep(&self) -> Duration {
            Duration::from_micros(self.read(1).unsigned_abs())
        }
    }

    #[test]
    fn s7_time_asleep_counts_as_passed_and_a_set_clock_does_not() {
        let machine = Machine::default();
        let clock = EngineClock::over(machine.clone(), None);
        let passed_s = || (clock.now().0 - DAY_US) / SECOND_US;
        machine.pass(SECOND_US, 20 * 60 * SECOND_US, 0);
        clock.follow();
        assert_eq!(passed_s(), 1 + 20 * 60, "it slept for twenty minutes");
        machine.pass(10 * SECOND_US, 0, 20 * 60 * SECOND_US);
        clock.follow();
        assert_eq!(passed_s(), 11 + 20 * 60, "the clock was set");
        // Set back during the suspend: the difference is not corrected twice.
        machine.pass(0, 600 * SECOND_US, -600 * SECOND_US - 20 * 60 * SECOND_US);
        clock.follow();
        assert_eq!(passed_s(), 11 + 20 * 60, "no more than the wall clock says");
    }

    #[test]
    fn the_system_tells_how_long_it_slept() {
        let times = SystemTimes::ahead(0);
        let (first, second) = (times.asleep(), times.asleep());
        assert!(second.abs_diff(first) < Duration::from_secs(1));
    }

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
