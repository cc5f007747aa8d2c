//! Injection of each fault. Invariant: afterwards the server is dead.

use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::Server;
use consign_testkit::shim;
use serde_json::json;

use crate::fault::{CrashFault, FailPoint};
use crate::trial::CrashTrial;
use consign_testkit::campaign::clients::LONG_LEASE_S;
use consign_testkit::campaign::findings::Promise;

/// How long the clients work undisturbed.
const WORK_MS: Range<u64> = 100..600;
/// How long a disk fails.
const TROUBLE_MS: Range<u64> = 30..120;
/// The rest of a round, after a disk recovered or a process continued.
const AFTER_MS: Range<u64> = 50..200;
const HEAL_LIMIT: Duration = Duration::from_secs(10);
/// A busy server passes a failpoint some hundred times per second, on a busy machine much less often.
const FAILPOINT_LIMIT: Duration = Duration::from_mins(1);
/// About as many pages as a checkpoint writes.
const CHECKPOINT_WRITES: u64 = 300;
/// The real pause of a process; the shim advances all clocks by the rest of a lease.
const SLEEP: Duration = Duration::from_millis(20);

impl CrashTrial<'_> {
    pub(crate) fn disturb(&mut self, round: u64, server: &mut Server) -> io::Result<()> {
        match self.state.fault {
            CrashFault::Kill | CrashFault::Power => self.state.pause(WORK_MS),
            CrashFault::Failpoint => return self.fail_at_point(round, server),
            CrashFault::Full => self.fill_the_disk(server)?,
            CrashFault::Eio if round.is_multiple_of(2) => return self.break_syncs(server),
            CrashFault::Eio => self.break_writes(server)?,
            CrashFault::Stop => self.stop_and_continue(server)?,
        }
        server.kill9().map(drop)
    }

    fn fail_at_point(&mut self, round: u64, server: &mut Server) -> io::Result<()> {
        match FailPoint::of_round(round) {
            FailPoint::BeforeWrite
            | FailPoint::AfterWrite
            | FailPoint::BeforeSync
            | FailPoint::AfterSync => ended_by_itself(server),
            FailPoint::Checkpoint => {
                let at_write = 1 + self.state.random.below(CHECKPOINT_WRITES);
                self.campaign.base.shim.die_in_checkpoint(at_write)?;
                let ended = ended_by_itself(server);
                self.campaign.base.shim.die_in_checkpoint(0)?;
                ended
            }
            FailPoint::Migration => {
                self.abort_a_migration(round)?;
                server.kill9().map(drop)
            }
            FailPoint::Backup => {
                self.state.pause(WORK_MS);
                let backup = self.abort_a_backup(round, server)?;
                server.kill9()?;
                self.restore(&backup)
            }
        }
    }

    fn fill_the_disk(&mut self, server: &Server) -> io::Result<()> {
        self.state.pause(WORK_MS);
        self.state
            .space
            .fill(&self.campaign.base.shim, &mut self.state.random)?;
        // Writes succeed while the log has space, so wait until it has none.
        let deadline = Instant::now() + HEAL_LIMIT;
        while is_writable(server)? && Instant::now() < deadline {}
        self.answers_reads(server)?;
        self.state.pause(TROUBLE_MS);
        self.state.space.free(&self.campaign.base.shim)?;
        self.heals(server)?;
        self.state.pause(AFTER_MS);
        Ok(())
    }

    /// In some rounds the disk recovers, in others the power is cut while it fails.
    fn break_writes(&mut self, server: &Server) -> io::Result<()> {
        self.state.pause(WORK_MS);
        self.campaign.base.shim.set(shim::Fault::WritesIo)?;
        self.state.pause(TROUBLE_MS);
        self.answers_reads(server)?;
        if self.state.random.percent(30) {
            // The next server finds a healthy disk; this one is dead before it could use it.
            server.signal("STOP")?;
            return self.campaign.base.shim.set(shim::Fault::None);
        }
        self.campaign.base.shim.set(shim::Fault::None)?;
        self.heals(server)?;
        self.state.pause(AFTER_MS);
        Ok(())
    }

    /// A disk that failed to sync cannot be trusted, so the server ends; the next one finds a healthy disk.
    fn break_syncs(&mut self, server: &mut Server) -> io::Result<()> {
        self.state.pause(WORK_MS);
        self.campaign.base.shim.set(shim::Fault::Syncs)?;
        let ended = server.wait(FAILPOINT_LIMIT);
        self.campaign.base.shim.set(shim::Fault::None)?;
        let code = ended.as_ref().ok().and_then(std::process::ExitStatus::code);
        self.state
            .findings
            .check(Promise::EndsAfterLostSync, code == Some(1), || {
                format!("after a failed sync the server ended with {ended:?}")
            });
        server.kill9().map(drop)
    }

    /// Suspends past every lease: the workers in their own process if there are some, else the server.
    fn stop_and_continue(&mut self, server: &Server) -> io::Result<()> {
        self.state.pause(WORK_MS);
        match &self.workers {
            Some(workers) => workers.signal("STOP")?,
            None => server.signal("STOP")?,
        }
        thread::sleep(SLEEP);
        self.campaign.base.shim.let_pass(LONG_LEASE_S + 1)?;
        if let Some(workers) = &self.workers {
            // Other workers take over the leases of the suspended ones.
            thread::sleep(SLEEP * 5);
            workers.signal("CONT")?;
        } else {
            server.signal("CONT")?;
        }
        self.state.pause(AFTER_MS);
        Ok(())
    }

    fn answers_reads(&mut self, server: &Server) -> io::Result<()> {
        let health = server.http().get("/health")?;
        let reads = health.status == 200 || health.json()["ledger"] == "unwritable";
        self.state.findings.check(Promise::Heals, reads, || {
            let (status, text) = (health.status, health.text());
            format!("/health answered {status} while the disk was in trouble: {text}")
        });
        Ok(())
    }

    fn heals(&mut self, server: &Server) -> io::Result<()> {
        let deadline = Instant::now() + HEAL_LIMIT;
        let mut healed = is_writable(server)?;
        while !healed && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            healed = is_writable(server)?;
        }
        self.state.findings.check(Promise::Heals, healed, || {
            format!("nothing was accepted in {HEAL_LIMIT:?} after the disk healed")
        });
        Ok(())
    }
}

fn ended_by_itself(server: &mut Server) -> io::Result<()> {
    let ended = server.wait(FAILPOINT_LIMIT).map(drop);
    ended.map_err(|error| io::Error::other(format!("the failpoint was not reached: {error}")))
}

/// Publishes in a namespace without workers.
fn is_writable(server: &Server) -> io::Result<bool> {
    let body = json!({"goal": "probe", "payload": {}, "namespace": "probe"});
    let reply = server.main_client()?.post("/intent", &body)?;
    Ok(reply.status == 201)
}
