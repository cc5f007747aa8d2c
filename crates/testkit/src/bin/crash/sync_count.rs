//! Counts syncs under a server: a kill cannot show that an answer came before its sync, since the
//! kernel keeps what a dead process wrote.

use std::io;
use std::thread;

use consign_testkit::process::{Http, Options, Server};
use consign_testkit::shim::Shim;

use consign_testkit::campaign::clients::publish_body;
use consign_testkit::campaign::findings::{Findings, Promise};

const ONE_BY_ONE: u64 = 40;
const PUBLISHERS: u64 = 8;
const EACH: u64 = 25;

/// `options` are those of a server under `shim`, on a data directory of its own.
pub(crate) fn check(options: &Options, shim: &Shim, findings: &mut Findings) -> io::Result<()> {
    let server = Server::start(options)?;
    one_by_one(&server, shim, findings)?;
    together(&server, shim, findings)
}

/// Alone, each acknowledged publish has a sync of its own, between request and answer.
fn one_by_one(server: &Server, shim: &Shim, findings: &mut Findings) -> io::Result<()> {
    let mut http = server.main_client()?;
    for number in 0..ONE_BY_ONE {
        let before = shim.syncs()?;
        let reply = http.post("/intent", &publish_body(&format!("alone-{number}")))?;
        let syncs = shim.syncs()? - before;
        let kept = reply.status == 201 && syncs >= 1;
        findings.check(Promise::SyncPerCommit, kept, || {
            let status = reply.status;
            format!("publish {number} was answered {status} after {syncs} syncs")
        });
    }
    Ok(())
}

/// Together they share commits, and each commit has a sync.
fn together(server: &Server, shim: &Shim, findings: &mut Findings) -> io::Result<()> {
    // Ordering: a commit counts after its sync, so syncs are read first here and last below.
    let syncs_before = shim.syncs()?;
    let commits_before = commits(server)?;
    let mut publishers = Vec::new();
    for publisher in 0..PUBLISHERS {
        let mut http = server.main_client()?;
        publishers.push(thread::spawn(move || publish(&mut http, publisher)));
    }
    let mut acknowledged = 0;
    for publisher in publishers {
        let published = publisher
            .join()
            .map_err(|_| io::Error::other("a publisher panicked"))?;
        acknowledged += published?;
    }
    let commits = commits(server)? - commits_before;
    let syncs = shim.syncs()? - syncs_before;
    let kept = acknowledged == PUBLISHERS * EACH && commits >= 1 && syncs >= commits;
    findings.check(Promise::SyncPerCommit, kept, || {
        format!("{acknowledged} publishes in {commits} commits had {syncs} syncs")
    });
    Ok(())
}

fn publish(http: &mut Http, publisher: u64) -> io::Result<u64> {
    let mut acknowledged = 0;
    for number in 0..EACH {
        let body = publish_body(&format!("together-{publisher}-{number}"));
        let reply = http.post("/intent", &body)?;
        acknowledged += u64::from(reply.status == 201);
    }
    Ok(acknowledged)
}

fn commits(server: &Server) -> io::Result<u64> {
    let reply = server.admin_client()?.get("/metrics")?.text();
    let line = reply
        .lines()
        .find_map(|line| line.strip_prefix("consign_commits_total "));
    line.and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| io::Error::other("/metrics has no consign_commits_total"))
}
