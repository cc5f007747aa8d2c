//! The simulated machine: a clock, a disk, and the real engine with its timekeeper in one thread.
//!
//! Invariant: time passes only in [`World::pass`], and the disk works only in [`World::turn`]. Everything that can run
//! has run before time moves on, because the runtime's clock is paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use consign_engine::{Clock, Engine, Options, SealKey, Timekeeper, WallClock};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::receipt::Signer;
use consign_store::SharedStore;
use consign_store::memory::simulated::{self, Fault, Machine, Turn};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const START: Micros = Micros(1_800_000_000 * SECOND_US);

/// The runtime's paused clock, plus jumps.
#[derive(Debug)]
pub(crate) struct SimTime {
    started: Instant,
    jumped_us: AtomicI64,
}

impl SimTime {
    fn jump(&self, us: i64) {
        self.jumped_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for SimTime {
    fn now(&self) -> Micros {
        let elapsed_us = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        START
            .plus(elapsed_us)
            .plus(self.jumped_us.load(Ordering::Relaxed))
    }
}

impl WallClock for SimTime {
    fn wall(&self) -> Micros {
        self.now()
    }
}

pub(crate) struct World {
    clock: Arc<SimTime>,
    pub(crate) store: SharedStore,
    /// Taken only while it restarts.
    machine: Option<Machine>,
    pub(crate) engine: Engine,
    timekeeper: JoinHandle<()>,
    seed: u64,
    boots: u64,
    /// Since when nothing went wrong with the disk or the clock.
    pub(crate) calm_since: Instant,
}

impl World {
    pub(crate) fn boot(seed: u64, requests_max: usize) -> Self {
        let clock = Arc::new(SimTime {
            started: Instant::now(),
            jumped_us: AtomicI64::new(0),
        });
        let (store, machine) = simulated::start(clock.clone(), requests_max);
        let store: SharedStore = store;
        let (engine, timekeeper) = start(&store, &clock, seed, 0);
        Self {
            clock,
            store,
            machine: Some(machine),
            engine,
            timekeeper,
            seed,
            boots: 0,
            calm_since: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Lets everything run that can, then lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) fn jump(&mut self, us: i64) {
        self.clock.jump(us);
        self.calm_since = Instant::now();
    }

    /// One commit of what waits.
    pub(crate) fn turn(&mut self, fault: Fault) -> Turn {
        if fault != Fault::None {
            self.calm_since = Instant::now();
        }
        self.machine
            .as_mut()
            .expect("there is a machine outside of a restart")
            .turn(fault)
    }

    /// A new process over what the disk holds.
    pub(crate) fn restart(&mut self) {
        self.timekeeper.abort();
        self.boots += 1;
        let machine = self.machine.take().expect("only one restart at a time");
        let (store, machine) = machine.restart();
        self.store = store;
        self.machine = Some(machine);
        (self.engine, self.timekeeper) = start(&self.store, &self.clock, self.seed, self.boots);
        self.calm_since = Instant::now();
    }
}

fn start(
    store: &SharedStore,
    clock: &Arc<SimTime>,
    seed: u64,
    boots: u64,
) -> (Engine, JoinHandle<()>) {
    // The operating system would give every process its own.
    let mut entropy = [0; 32];
    entropy[..8].copy_from_slice(&seed.to_le_bytes());
    entropy[8..16].copy_from_slice(&boots.to_le_bytes());
    let engine = Engine::new(Options {
        store: Arc::clone(store),
        clock: clock.clone(),
        wall: clock.clone(),
        entropy,
        seal: SealKey::new([7; 32]),
        signer: Signer::from_seed(&[9; 32]),
        main_key: "ck_main".to_owned(),
        cleanup_interval: Duration::from_mins(5),
    });
    let timekeeper = Timekeeper::new(engine.clone()).run(std::future::pending(), || {});
    (engine, tokio::spawn(timekeeper))
}
