//! The simulated machine: a clock, a disk, and the real engine with its timekeeper in one thread.
//!
//! Invariant: time passes only in [`SimMachine::pass`], and the disk works only in [`SimMachine::turn`]. All runnable
//! tasks have run before time advances, because the runtime's clock is paused.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Clock, Engine, EngineClock, Options, SealKey, Timekeeper};
use consign_kernel::ids::Micros;
use consign_kernel::receipt::{PublicKey, Signer};
use consign_store::SharedStore;
use consign_store::memory::simulated::{self, DiskFault, SimulatedMachine, Turn};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clocks::MachineClocks;

type MachineClock = EngineClock<MachineClocks>;

pub(crate) struct SimMachine {
    pub(crate) clocks: MachineClocks,
    /// Engine time of the running process.
    clock: Arc<MachineClock>,
    pub(crate) store: SharedStore,
    /// Taken only while it restarts.
    machine: Option<SimulatedMachine>,
    pub(crate) engine: Engine,
    timekeeper: JoinHandle<()>,
    seed: u64,
    pub(crate) boots: u64,
    /// Since when disk and clocks work without a fault.
    pub(crate) calm_since: Instant,
}

impl SimMachine {
    pub(crate) fn boot(seed: u64, requests_max: usize) -> Self {
        let clocks = MachineClocks::start();
        let clock = Arc::new(EngineClock::over(clocks.clone(), None));
        let (store, machine) = simulated::start(clock.clone(), requests_max);
        let store: SharedStore = store;
        let (engine, timekeeper) = start(&store, &clock, seed, 0);
        Self {
            clocks,
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

    /// Runs all runnable tasks, then advances time.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Suspends the machine.
    pub(crate) fn sleep(&mut self, us: i64) {
        self.clocks.sleep(us);
        self.calm_since = Instant::now();
    }

    /// Sets the wall clock, forward or back.
    pub(crate) fn set_wall(&mut self, us: i64) {
        self.clocks.set(us);
        self.calm_since = Instant::now();
    }

    /// Commits the waiting requests.
    pub(crate) fn turn(&mut self, fault: DiskFault) -> Turn {
        if fault != DiskFault::None {
            self.calm_since = Instant::now();
        }
        self.machine
            .as_mut()
            .expect("there is a machine outside of a restart")
            .turn(fault)
    }

    /// Starts a new process on the state of the disk.
    pub(crate) fn restart(&mut self) {
        self.timekeeper.abort();
        self.boots += 1;
        let machine = self.machine.take().expect("only one restart at a time");
        let last_time = Some(machine.last_time());
        self.clock = Arc::new(EngineClock::over(self.clocks.clone(), last_time));
        let (store, machine) = machine.restart(self.clock.clone());
        self.store = store;
        self.machine = Some(machine);
        (self.engine, self.timekeeper) = start(&self.store, &self.clock, self.seed, self.boots);
        self.calm_since = Instant::now();
    }
}

fn start(
    store: &SharedStore,
    clock: &Arc<MachineClock>,
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
        signer: signer(),
        main_key: "ck_main".to_owned(),
        cleanup_interval: Duration::from_mins(5),
    });
    let clock = Arc::clone(clock);
    let timekeeper =
        Timekeeper::new(engine.clone()).run(std::future::pending(), move || clock.follow());
    (engine, tokio::spawn(timekeeper))
}

/// The same for every process, as from a file in the data directory.
fn signer() -> Signer {
    Signer::from_seed(&[9; 32])
}

/// The keys for the verification of receipts.
pub(crate) fn trusted_keys() -> Vec<PublicKey> {
    vec![signer().public().clone()]
}
