//! Injection and recovery of each fault. Invariant: afterwards all servers run and all connections are open.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use consign_testkit::campaign::clients::LONG_LEASE_S;
use consign_testkit::campaign::findings::Promise;
use consign_testkit::proxy::Mode;

use crate::fault::ClusterFault;
use crate::nodes::{self, ClusterNode, NODES};
use crate::trial::ClusterTrial;

/// How long the clients work undisturbed.
const WORK_MS: Range<u64> = 300..900;
/// How long a server is down.
pub(crate) const GONE_MS: Range<u64> = 100..900;
/// How long a node is suspended: some clients get late responses, and some have given up.
const SLEEP_MS: Range<u64> = 300..2_600;
/// How long the standby gets no data before its primary is lost.
const LAG_MS: Range<u64> = 200..500;
/// How long a connection hangs before the timeouts of nodes expire, and after.
const HUNG_MS: Range<u64> = 300..900;
/// How long a node works with another clock: it compares clocks every second.
const CLOCK_MS: Range<u64> = 1_300..2_200;
/// How far clocks are moved; with a difference of two seconds a node grants no leases.
pub(crate) const APART_US: i64 = 1_500_000;
/// The accuracy of reading a clock by starting a program.
const CLOCK_US_UNSURE: u64 = 400_000;
/// The rest of a round after the recovery.
pub(crate) const AFTER_MS: Range<u64> = 100..300;
/// How long it may take until a full disk causes an error.
const FULL_LIMIT: Duration = Duration::from_secs(10);
/// More than any timeout of a node.
const LIMITS_OVER_S: i64 = 61;

impl ClusterTrial<'_> {
    pub(crate) fn disturb(&mut self, round: u64) -> io::Result<()> {
        self.state.pause(WORK_MS);
        match self.state.fault {
            ClusterFault::KillNode => self.kill_node(),
            ClusterFault::KillPostmaster => {
                self.pair.kill_primary()?;
                self.state.pause(GONE_MS);
                self.pair.start_primary()
            }
            ClusterFault::Promote => self.promote(),
            ClusterFault::StopNode => self.stop_node(),
            ClusterFault::Cut if round.is_multiple_of(2) => self.hang_wires(),
            ClusterFault::Cut => {
                self.cut_wires();
                Ok(())
            }
            ClusterFault::FullDisk => self.fill_disk(),
            ClusterFault::Upgrade => self.upgrade(),
            ClusterFault::NodeClock => self.set_node_clock(round),
            ClusterFault::PromoteClock => self.promote_with_another_clock(round),
            ClusterFault::Outsiders => self.meet_outsiders(round),
        }
    }

    fn kill_node(&mut self) -> io::Result<()> {
        let index = self.state.random.index(NODES);
        self.nodes[index].kill9()?;
        self.state.pause(GONE_MS);
        self.nodes[index].start_again()
    }

    /// In most rounds the standby lags when its primary is killed: acknowledged commits had waited for it.
    fn promote(&mut self) -> io::Result<()> {
        if self.state.random.percent(70) {
            self.pair.hang_replication();
            self.state.pause(LAG_MS);
        }
        let patient = self.state.random.percent(40);
        self.pair.promote(patient)?;
        self.state.pause(GONE_MS);
        self.pair.rebuild()
    }

    /// One node has a different time than the others and the database; then it is set back. In every second round it
    /// is restarted meanwhile.
    fn set_node_clock(&mut self, round: u64) -> io::Result<()> {
        let index = self.state.random.index(NODES);
        let (shim, clock) = (&self.campaign.base.shim, nodes::clock(index));
        let before = shim.clock_reads(clock)?;
        let ahead = !round.is_multiple_of(2);
        shim.set_clock(clock, if ahead { self.apart_us } else { -self.apart_us })?;
        self.state.pause(CLOCK_MS);
        if restarts_with_another_clock(round) {
            self.nodes[index].restart()?;
            self.state.pause(CLOCK_MS);
        }
        let reads = shim.clock_reads(clock)? - before;
        self.clock_moved(reads > 0, || format!("node {index} never looked at it"));
        // The node uses the time of the ledger, whatever its own clock says.
        self.alive(round);
        shim.set_clock(clock, 0)
    }

    /// The clocks of the two servers differ, so that time jumps forward in one round and back in the next, or the
    /// other way round. The difference does not grow: a node whose time is far ahead of its database grants no leases
    /// either.
    fn promote_with_another_clock(&mut self, round: u64) -> io::Result<()> {
        let wanted_us = if round.is_multiple_of(2) {
            0
        } else {
            self.apart_us
        };
        let clock = self.pair.standby_clock();
        self.campaign.base.shim.set_clock(clock, wanted_us)?;
        self.promote()?;
        let found_us = self.pair.ahead_us()?;
        let there = found_us.abs_diff(wanted_us) < CLOCK_US_UNSURE;
        self.clock_moved(there, || {
            format!("the new primary is ahead by {found_us} us instead of {wanted_us}")
        });
        Ok(())
    }

    fn clock_moved(&mut self, moved: bool, why_not: impl FnOnce() -> String) {
        self.clocks_moved += u64::from(moved);
        let findings = &mut *self.state.findings;
        findings.check(Promise::ClockMoved, moved, why_not);
    }

    /// Suspends a node past every lease, while the others take over.
    fn stop_node(&mut self) -> io::Result<()> {
        let index = self.state.random.index(NODES);
        self.nodes[index].signal("STOP")?;
        self.campaign.base.shim.let_pass(LONG_LEASE_S + 1)?;
        self.state.pause(SLEEP_MS);
        self.nodes[index].signal("CONT")
    }

    fn cut_wires(&mut self) {
        let cut = self.some_nodes();
        self.each(&cut, |node| node.set_wires(Mode::Cut));
        self.state.pause(GONE_MS);
        self.each(&cut, |node| node.set_wires(Mode::Open));
    }

    /// No data moves until every timeout has expired. Then it continues late, or never.
    fn hang_wires(&mut self) -> io::Result<()> {
        let cut = self.some_nodes();
        self.each(&cut, |node| node.set_wires(Mode::Hung));
        self.state.pause(HUNG_MS);
        self.let_limits_pass()?;
        self.state.pause(HUNG_MS);
        match self.state.random.below(3) {
            0 => self.each(&cut, |node| node.set_wires(Mode::Open)),
            1 => {
                self.each(&cut, |node| node.set_wires(Mode::Cut));
                self.state.pause(GONE_MS);
                self.each(&cut, |node| node.set_wires(Mode::Open));
            }
            _ => {
                self.each(&cut, ClusterNode::forget_wires);
                self.state.pause(HUNG_MS);
                self.let_limits_pass()?;
            }
        }
        Ok(())
    }

    /// One node, and sometimes all of them.
    fn some_nodes(&mut self) -> Vec<usize> {
        if self.state.random.percent(25) {
            return (0..NODES).collect();
        }
        vec![self.state.random.index(NODES)]
    }

    fn each(&self, indexes: &[usize], action: impl Fn(&ClusterNode)) {
        for index in indexes {
            action(&self.nodes[*index]);
        }
    }

    /// Advances the time of all processes. A process that waits for its network reads the clock only when it is
    /// woken, which a short stop does.
    fn let_limits_pass(&self) -> io::Result<()> {
        self.campaign.base.shim.let_pass(LIMITS_OVER_S)?;
        for node in &self.nodes {
            node.signal("STOP")?;
            node.signal("CONT")?;
        }
        Ok(())
    }

    /// PostgreSQL fails writes without space, and ends without space for its log; then it is started again.
    fn fill_disk(&mut self) -> io::Result<()> {
        let log_too = self.state.random.percent(50);
        self.state
            .space
            .fill(&self.campaign.base.shim, &mut self.state.random)?;
        let deadline = Instant::now() + FULL_LIMIT;
        while self.pair.primary_runs() && Instant::now() < deadline {
            if log_too {
                self.pair.use_up_log();
            } else if self.nodes[0].refuses() {
                break;
            }
        }
        self.state.pause(GONE_MS);
        self.state.space.free(&self.campaign.base.shim)?;
        if self.pair.is_writable() {
            return Ok(());
        }
        self.pair.kill_primary()?;
        self.pair.start_primary()
    }

    fn upgrade(&mut self) -> io::Result<()> {
        for index in 0..NODES {
            self.nodes[index].upgrade()?;
            self.state.pause(AFTER_MS);
        }
        self.demand_newest_schema()
    }
}

/// Whether the node whose clock is moved is also restarted with it; its clients may then receive errors.
pub(crate) fn restarts_with_another_clock(round: u64) -> bool {
    round.is_multiple_of(2)
}
