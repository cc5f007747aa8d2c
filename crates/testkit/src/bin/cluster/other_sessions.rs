//! Other sessions beside the nodes: on their database, or waiting for work. They must not cause a failure.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::thread::JoinHandle;

use consign_testkit::campaign::findings::Promise;

use crate::inject::GONE_MS;
use crate::nodes::NODES;
use crate::trial::ClusterTrial;

/// Locks the newest rows, including those in use.
const LOCKS: &str = "BEGIN; \
    SELECT count(*) FROM (SELECT 1 FROM consign.intents ORDER BY seq DESC LIMIT 50 FOR UPDATE) AS locked; \
    SELECT pg_sleep(2); COMMIT";
/// Holds a snapshot, so that later row versions cannot be removed.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; \
    SELECT count(*) FROM consign.facts; SELECT pg_sleep(2); COMMIT";
/// Every connection of every node.
const END_ALL: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'consign'";

/// The number of clients that wait at one node.
const WAITERS: usize = 60;
/// Until all of them have claimed once.
const WAITING_MS: Range<u64> = 500..900;

impl ClusterTrial<'_> {
    /// Four kinds take turns.
    pub(crate) fn meet_outsiders(&mut self, round: u64) -> io::Result<()> {
        match round % 4 {
            1 => self.beside(round, LOCKS),
            2 => self.beside(round, SNAPSHOT),
            3 => self.crowd_out(),
            _ => self.wait_elsewhere(round),
        }
    }

    /// Every node works while another session has this transaction open.
    fn beside(&mut self, round: u64, text: &'static str) -> io::Result<()> {
        let session = self.pair.begin_sql(text);
        self.alive(round);
        joined(session).map(drop)
    }

    /// The database has no free connection, and the nodes lose theirs.
    fn crowd_out(&mut self) -> io::Result<()> {
        let mut held = self.pair.hold_connections()?;
        let Some(held_connection) = held.first_mut() else {
            return Err(io::Error::other("the database was full before"));
        };
        held_connection.say(END_ALL)?;
        // Some released connections are taken again before the nodes reconnect.
        held.extend(self.pair.hold_connections()?);
        self.state.pause(GONE_MS);
        drop(held);
        Ok(())
    }

    /// As many clients wait at one node as another node admits intents at once, and each gets one.
    fn wait_elsewhere(&mut self, round: u64) -> io::Result<()> {
        let goal = format!("burst-{round}");
        let there = self.state.random.index(NODES);
        let here = (there + 1) % NODES;
        let waiting = (0..WAITERS)
            .map(|_| self.nodes[there].wait_for(&goal))
            .collect::<io::Result<Vec<_>>>()?;
        self.state.pause(WAITING_MS);
        self.nodes[here].publish_many(&goal, WAITERS)?;
        let mut got = BTreeSet::new();
        for waiter in waiting {
            got.extend(joined(waiter)?);
        }
        let findings = &mut *self.state.findings;
        findings.check(Promise::Reached, got.len() == WAITERS, || {
            format!("round {round}: {} of {WAITERS} got an intent", got.len())
        });
        Ok(())
    }
}

fn joined<T>(task: JoinHandle<io::Result<T>>) -> io::Result<T> {
    let ended = task.join();
    ended.map_err(|_| io::Error::other("a thread panicked"))?
}
