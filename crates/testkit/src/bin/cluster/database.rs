//! The database of a trial: a primary and its synchronous standby, which change roles.
//!
//! Invariant: outside of a fault every commit waits for the standby, so acknowledged commits are on both servers. A
//! promoted standby has no standby: it either waits for a new one, or acknowledges alone until the new standby has
//! caught up. Only then may the next server be lost.

use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use consign_testkit::history::now_us;
use consign_testkit::postgres::Cluster;
use consign_testkit::proxy::{Mode, Wire};
use consign_testkit::shim::Clock;

use crate::campaign::ClusterCampaign;
use crate::fault::ClusterPlant;
use crate::held_connections::HeldConnection;

pub(crate) const DATABASE: &str = "ledger";
/// Commits are synced, and a disconnected standby reconnects soon. Time is advanced in jumps, so a connection must
/// not time out because of them.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=200",
    "shared_buffers=32MB",
    "max_wal_size=64MB",
    "min_wal_size=32MB",
    "wal_keep_size=48MB",
    "wal_sender_timeout=0",
    "wal_receiver_timeout=0",
    "wal_retrieve_retry_interval=100ms",
];
/// The clocks of the two servers; those of nodes come before.
const CLOCKS: [Clock; 2] = [Clock(6), Clock(7)];
const WHOLE_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// How long a server may take to apply reloaded settings.
const SETTINGS_LAG: Duration = Duration::from_millis(500);

/// One of the two servers, with the proxied connection over which the other replicates.
#[derive(Debug)]
struct PairMember {
    name: &'static str,
    clock: Clock,
    cluster: Cluster,
    wire: Wire,
}

#[derive(Debug)]
pub(crate) struct ReplicatedPair {
    sides: [PairMember; 2],
    primary: usize,
    /// Whether commits wait for the standby.
    waits: bool,
}

/// An empty database on a stopped server, to be copied for each trial.
pub(crate) fn template(folder: &Path) -> io::Result<Cluster> {
    let cluster = Cluster::place(folder)?;
    cluster.init()?;
    cluster.include_settings()?;
    cluster.start(SETTINGS)?;
    cluster.sql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
    cluster.stop("fast")?;
    Ok(cluster)
}

impl ReplicatedPair {
    /// Creates both servers below `folder`, from the template.
    pub(crate) fn make(folder: &Path, campaign: &ClusterCampaign) -> io::Result<Self> {
        let side = |name: &'static str, clock: Clock| -> io::Result<PairMember> {
            let place = folder.join(name);
            let mut cluster = Cluster::place(&place)?;
            // An earlier trial may have moved it.
            campaign.base.shim.set_clock(clock, 0)?;
            let shim = campaign.base.shim.variables(&place.to_string_lossy());
            for (variable, value) in shim.into_iter().chain([clock.variable()]) {
                cluster = cluster.env(variable, &value);
            }
            let wire = campaign.carrier.wire(cluster.port)?;
            Ok(PairMember {
                name,
                clock,
                cluster,
                wire,
            })
        };
        let pair = Self {
            sides: [side("a", CLOCKS[0])?, side("b", CLOCKS[1])?],
            primary: 0,
            waits: campaign.plant != Some(ClusterPlant::AsyncStandby),
        };
        let first = &pair.primary().cluster;
        first.copy_stopped(&campaign.template)?;
        first.configure("")?;
        first.start(SETTINGS)?;
        pair.standby().cluster.copy_stopped(&campaign.template)?;
        pair.start_standby()?;
        Ok(pair)
    }

    fn primary(&self) -> &PairMember {
        &self.sides[self.primary]
    }

    fn standby(&self) -> &PairMember {
        &self.sides[1 - self.primary]
    }

    pub(crate) fn ports(&self) -> [u16; 2] {
        [self.sides[0].cluster.port, self.sides[1].cluster.port]
    }

    /// The URL of the primary, without a proxy.
    pub(crate) fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    pub(crate) fn url_of(&self, database: &str) -> String {
        self.primary().cluster.url(database)
    }

    pub(crate) fn sql(&self, text: &str) -> io::Result<String> {
        self.sql_in(DATABASE, text)
    }

    pub(crate) fn sql_in(&self, database: &str, text: &str) -> io::Result<String> {
        self.primary().cluster.sql(database, text)
    }

    /// The same in a thread, for long statements.
    pub(crate) fn begin_sql(&self, text: &'static str) -> JoinHandle<io::Result<String>> {
        let cluster = self.primary().cluster.clone();
        thread::spawn(move || cluster.sql(DATABASE, text))
    }

    /// Takes all free connections of the primary.
    pub(crate) fn hold_connections(&self) -> io::Result<Vec<HeldConnection>> {
        HeldConnection::take_all(self.primary().cluster.port, DATABASE)
    }

    /// Starts a standby from its copy; from then on commits wait for it.
    fn start_standby(&self) -> io::Result<()> {
        let (primary, standby) = (self.primary(), self.standby());
        primary.wire.set(Mode::Open);
        standby.cluster.mark_standby()?;
        standby.cluster.configure(&format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres application_name={}'\n",
            primary.wire.port, standby.name
        ))?;
        standby.cluster.start(SETTINGS)?;
        if self.waits {
            primary.cluster.configure(&waiting_for(standby))?;
            primary.cluster.reload()?;
            thread::sleep(SETTINGS_LAG);
        }
        self.until_whole()
    }

    /// Waits until the standby has caught up and is synchronous.
    pub(crate) fn until_whole(&self) -> io::Result<()> {
        let state = if self.waits { "sync" } else { "async" };
        let deadline = Instant::now() + WHOLE_LIMIT;
        let mut said = String::new();
        while Instant::now() < deadline {
            let cluster = &self.primary().cluster;
            let position = cluster.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
            let asked = position.and_then(|position| {
                let position = position.trim();
                let text = format!(
                    "SELECT flush_lsn >= '{position}' FROM pg_stat_replication WHERE sync_state = '{state}'"
                );
                cluster.sql("postgres", &text)
            });
            match asked {
                Ok(answer) if answer.trim() == "t" => return Ok(()),
                Ok(answer) => said = answer,
                Err(error) => said = error.to_string(),
            }
            thread::sleep(POLL);
        }
        Err(io::Error::other(format!(
            "the standby did not come back in {WHOLE_LIMIT:?}: {said}"
        )))
    }

    /// Kills the primary, to be started again.
    pub(crate) fn kill_primary(&self) -> io::Result<()> {
        self.primary().cluster.kill9()
    }

    /// The clock of the server that will be promoted next.
    pub(crate) fn standby_clock(&self) -> Clock {
        self.standby().clock
    }

    /// How far the primary's clock is ahead of the clients' clock.
    pub(crate) fn ahead_us(&self) -> io::Result<i64> {
        let sent_us = now_us();
        let text = self.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")?;
        let told_us: i64 = text.trim().parse().map_err(io::Error::other)?;
        Ok(told_us - i64::midpoint(sent_us, now_us()))
    }

    pub(crate) fn start_primary(&self) -> io::Result<()> {
        self.primary().cluster.start(SETTINGS)
    }

    /// Whether the primary accepts writes.
    pub(crate) fn is_writable(&self) -> bool {
        self.sql("CREATE TEMPORARY TABLE probe AS SELECT 1").is_ok()
    }

    /// Starts a new log file, which needs space as soon as the spare files are used up. Not while the standby lags: a
    /// file that it still needs would be reused, and it could never catch up.
    pub(crate) fn use_up_log(&self) {
        // Without space it fails, which is intended.
        let _ = self.sql(
            "SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal() FROM pg_stat_replication \
             WHERE pg_current_wal_lsn() - flush_lsn < 16777216",
        );
        thread::sleep(POLL);
    }

    pub(crate) fn primary_runs(&self) -> bool {
        self.primary().cluster.postmaster().is_some()
    }

    /// From now on no data reaches the standby, without an error.
    pub(crate) fn hang_replication(&self) {
        self.primary().wire.set(Mode::Hung);
    }

    /// Kills the primary for good; data in transit to the standby is lost too. The standby is promoted, and commits
    /// on it wait for a new standby only if `patient`.
    pub(crate) fn promote(&mut self, patient: bool) -> io::Result<()> {
        self.kill_primary()?;
        self.primary().wire.set(Mode::Cut);
        let (old, new) = (self.primary(), self.standby());
        let settings = if patient && self.waits {
            waiting_for(old)
        } else {
            String::new()
        };
        new.cluster.configure(&settings)?;
        new.cluster.reload()?;
        new.cluster.promote()?;
        self.primary = 1 - self.primary;
        Ok(())
    }

    /// The former primary becomes the standby, from a fresh copy.
    pub(crate) fn rebuild(&self) -> io::Result<()> {
        let (primary, standby) = (self.primary(), self.standby());
        standby.cluster.copy_running(&primary.cluster)?;
        self.start_standby()
    }
}

impl Drop for ReplicatedPair {
    fn drop(&mut self) {
        for side in &self.sides {
            // Errors cannot be reported here.
            let _ = side.cluster.kill9();
        }
    }
}

fn waiting_for(side: &PairMember) -> String {
    format!("synchronous_standby_names = 'FIRST 1 ({})'\n", side.name)
}
