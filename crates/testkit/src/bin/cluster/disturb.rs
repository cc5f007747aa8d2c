//! What each fault does, and how it is healed. Invariant: afterwards all servers run and all wires are open.

use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::campaign::clients::LONG_LEASE_S;
use consign_testkit::proxy::Mode;

use crate::fault::Fault;
use crate::nodes::{NODES, Node};
use crate::stretch::Stretch;

/// How long the clients work undisturbed.
const WORK_MS: Range<u64> = 300..900;
/// How long something is gone.
const GONE_MS: Range<u64> = 100..900;
/// How long a node sleeps: some clients hear late, and some have given up.
const SLEEP_MS: Range<u64> = 300..2_600;
/// How long the standby hears nothing before its primary is lost.
const LAG_MS: Range<u64> = 200..500;
/// How long a wire hangs before the time limits of nodes run out, and after.
const HUNG_MS: Range<u64> = 300..900;
/// The rest of a round, when all works again.
pub(crate) const AFTER_MS: Range<u64> = 100..300;
/// A disk that was filled is noticed within this time.
const FULL_LIMIT: Duration = Duration::from_secs(10);
/// More than any time limit of a node, so that none is left when it has passed.
const LIMITS_OVER_S: i64 = 61;

impl Stretch<'_> {
    pub(crate) fn disturb(&mut self, round: u64) -> io::Result<()> {
        self.pause(WORK_MS);
        match self.fault {
            Fault::KillNode => self.kill_node(),
            Fault::KillPostmaster => {
                self.pair.kill_primary()?;
                self.pause(GONE_MS);
                self.pair.start_primary()
            }
            Fault::Promote => self.promote(),
            Fault::StopNode => self.stop_node(),
            Fault::Cut if round.is_multiple_of(2) => self.hang_wires(),
            Fault::Cut => {
                self.cut_wires();
                Ok(())
            }
            Fault::FullDisk => self.fill_disk(),
            Fault::Upgrade => self.upgrade(),
        }
    }

    fn kill_node(&mut self) -> io::Result<()> {
        let index = self.chance.index(NODES);
        self.nodes[index].kill9()?;
        self.pause(GONE_MS);
        self.nodes[index].start_again()
    }

    /// In most rounds the standby is behind when its primary dies: commits that were acknowledged had waited for it.
    fn promote(&mut self) -> io::Result<()> {
        if self.chance.percent(70) {
            self.pair.hang_replication();
            self.pause(LAG_MS);
        }
        let patient = self.chance.percent(40);
        self.pair.promote(patient)?;
        self.pause(GONE_MS);
        self.pair.rebuild()
    }

    /// Sleeps past every lease, while the others take over.
    fn stop_node(&mut self) -> io::Result<()> {
        let index = self.chance.index(NODES);
        self.nodes[index].signal("STOP")?;
        self.ground.shim.let_pass(LONG_LEASE_S + 1)?;
        self.pause(SLEEP_MS);
        self.nodes[index].signal("CONT")
    }

    fn cut_wires(&mut self) {
        let cut = self.some_nodes();
        self.each(&cut, |node| node.set_wires(Mode::Cut));
        self.pause(GONE_MS);
        self.each(&cut, |node| node.set_wires(Mode::Open));
    }

    /// Nothing moves until every time limit is over. Then it moves on late, or never.
    fn hang_wires(&mut self) -> io::Result<()> {
        let cut = self.some_nodes();
        self.each(&cut, |node| node.set_wires(Mode::Hung));
        self.pause(HUNG_MS);
        self.let_limits_pass()?;
        self.pause(HUNG_MS);
        match self.chance.below(3) {
            0 => self.each(&cut, |node| node.set_wires(Mode::Open)),
            1 => {
                self.each(&cut, |node| node.set_wires(Mode::Cut));
                self.pause(GONE_MS);
                self.each(&cut, |node| node.set_wires(Mode::Open));
            }
            _ => {
                self.each(&cut, Node::forget_wires);
                self.pause(HUNG_MS);
                self.let_limits_pass()?;
            }
        }
        Ok(())
    }

    /// One node, and sometimes all of them.
    fn some_nodes(&mut self) -> Vec<usize> {
        if self.chance.percent(25) {
            return (0..NODES).collect();
        }
        vec![self.chance.index(NODES)]
    }

    fn each(&self, indexes: &[usize], act: impl Fn(&Node)) {
        for index in indexes {
            act(&self.nodes[*index]);
        }
    }

    /// Time passes for all. A process that waits for its network does not look at the clock before it is woken, which
    /// a short stop does.
    fn let_limits_pass(&self) -> io::Result<()> {
        self.ground.shim.let_pass(LIMITS_OVER_S)?;
        for node in &self.nodes {
            node.signal("STOP")?;
            node.signal("CONT")?;
        }
        Ok(())
    }

    /// PostgreSQL refuses what it has no space for, and ends when it has none for its log; then it is started again.
    fn fill_disk(&mut self) -> io::Result<()> {
        let log_too = self.chance.percent(50);
        self.space.fill(&self.ground.shim, &mut self.chance)?;
        let deadline = Instant::now() + FULL_LIMIT;
        while self.pair.primary_runs() && Instant::now() < deadline {
            if log_too {
                self.pair.use_up_log();
            } else if self.nodes[0].refuses() {
                break;
            }
        }
        self.pause(GONE_MS);
        self.space.free(&self.ground.shim)?;
        if self.pair.is_writable() {
            return Ok(());
        }
        self.pair.kill_primary()?;
        self.pair.start_primary()
    }

    fn upgrade(&mut self) -> io::Result<()> {
        for index in 0..NODES {
            self.nodes[index].upgrade()?;
            self.pause(AFTER_MS);
        }
        self.demand_newest_schema()
    }

    pub(crate) fn pause(&mut self, range_ms: Range<u64>) {
        let pause_ms = range_ms.start + self.chance.below(range_ms.end - range_ms.start);
        thread::sleep(Duration::from_millis(pause_ms));
    }
}
