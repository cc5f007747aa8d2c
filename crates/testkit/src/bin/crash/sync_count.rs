//! Counts the syncs of a server: a kill cannot prove that a sync precedes its response, because the kernel keeps the
//! writes of a dead process.

use std::io;
use std::thread;

use consign_testkit::process::{Http, Options, Server};
use consign_testkit::shim::Shim;

use consign_testkit::campaign::clients::publish_body;
use consign_testkit::campaign::findings::{Findings, Promise};

const ONE_BY_ONE: u64 = 40;
const PUBLISHERS: u64 = 8;
const EACH: u64 = 25;

/// `options` are those of a server with `shim`, on its own data directory.
pub(crate) fn check(options: &Options, shim: &Shim, findings: &mut Findings) -> io::Result<()> {
    let server = Server::start(options)?;
    one_by_one(&server, shim, findings)?;
    together(&server, shim, findings)
}

/// One at a time, each acknowledged publish has its own sync, between request and response.
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

/// Concurrent publishes share commits, and each commit has a sync.
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
