//! Members of a mesh in a campaign: senders that repeat their ids, and a recipient that acknowledges most messages.
//!
//! Invariant: what a member sends and what it receives is in its history file; checks use the files only.

mod checks;
mod history;
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::campaign::endpoints::Endpoints;
use crate::campaign::findings::{Findings, Promise};
use crate::mesh_members::{Membership, TestMember};
use crate::process::{Http, Options};
use crate::seeded_random::SeededRandom;

use history::{MemberEntries, MemberHistory};
use member::{MemberConnection, ReceivingMember, SendingMember};

const SENDERS: usize = 3;
const SLUG: &str = "campaign";
/// Branches of the seed that other clients do not use.
const FIRST_BRANCH: usize = 200;
const ACKNOWLEDGED_PERCENT: u64 = 80;
/// Everything reaches its recipient within this time, longer than the lease of a delivery.
const END_LIMIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const TRIES_MAX: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(20);
const RATE: &str = "100000000";

/// The members of a trial and their histories.
#[derive(Debug)]
pub struct MeshPool {
    members: Option<Arc<CampaignMembers>>,
    folder: PathBuf,
    random: SeededRandom,
    entries: MemberEntries,
}

/// The running members of a round.
#[derive(Debug)]
pub struct RunningMembers {
    files: Vec<PathBuf>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct CampaignMembers {
    senders: Vec<(TestMember, Membership)>,
    recipient: (TestMember, Membership),
}

impl MeshPool {
    pub fn new(folder: &Path, seed: u64) -> Self {
        Self {
            members: None,
            folder: folder.to_owned(),
            random: SeededRandom::new(seed ^ 0x6d65_7368),
            entries: MemberEntries::default(),
        }
    }

    /// Lifts the limits of the rates.
    pub fn configure(options: Options) -> Options {
        options
            .env("MESH_SENDS_PER_MIN", RATE)
            .env("MESH_SEND_BURST", RATE)
    }

    /// Creates the mesh and lets the members join.
    pub fn register(&mut self, operator: &mut Http, http: &mut Http) -> io::Result<()> {
        demand(operator, "/v1/meshes", &json!({ "slug": SLUG }))?;
        let path = format!("/v1/meshes/{SLUG}/invites");
        let invite = demand(operator, &path, &json!({"uses": SENDERS + 1}))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let token = text(&invite["token"]);
        let mut join = |member: TestMember| -> io::Result<_> {
            let joined = demand(http, "/join", &member.join(&token))?;
            let membership = Membership {
                mesh_id: text(&invite["mesh_id"]),
                member_id: text(&joined["memberId"]),
            };
            Ok((member, membership))
        };
        let seeds = 31_u8..;
        let senders = (0..SENDERS).zip(seeds);
        let senders =
            senders.map(|(index, seed)| join(TestMember::new(&format!("sender-{index}"), seed)));
        self.members = Some(Arc::new(CampaignMembers {
            senders: senders.collect::<io::Result<_>>()?,
            recipient: join(TestMember::new("recipient", 30))?,
        }));
        Ok(())
    }

    fn members(&self) -> Arc<CampaignMembers> {
        Arc::clone(self.members.as_ref().expect("the members have joined"))
    }

    /// Starts the members of a round; they end with their server, or when their endpoints are over.
    pub fn send(
        &self,
        round: u64,
        endpoints: impl Fn(usize) -> io::Result<Endpoints>,
    ) -> io::Result<RunningMembers> {
        let mut running = RunningMembers {
            files: Vec::new(),
            threads: Vec::new(),
        };
        for index in 0..SENDERS {
            let sender = SendingMember {
                members: self.members(),
                index,
                prefix: format!("r{round}-s{index}"),
                endpoints: endpoints(index)?,
                history: running.history(&self.folder, &format!("{round}-sender-{index}"))?,
                random: self.random.branch(FIRST_BRANCH + index, round),
            };
            running.threads.push(thread::spawn(move || sender.work()));
        }
        let endpoints = endpoints(SENDERS)?;
        let recipient = self.recipient(round, ACKNOWLEDGED_PERCENT, endpoints, &mut running)?;
        let work = thread::spawn(move || recipient.work());
        running.threads.push(work);
        Ok(running)
    }

    fn recipient(
        &self,
        round: u64,
        acknowledges: u64,
        endpoints: Endpoints,
        running: &mut RunningMembers,
    ) -> io::Result<ReceivingMember> {
        Ok(ReceivingMember {
            members: self.members(),
            endpoints,
            history: running.history(&self.folder, &format!("{round}-recipient"))?,
            random: self.random.branch(FIRST_BRANCH + SENDERS, round),
            acknowledges,
        })
    }

    /// Waits until the members end, and reads their histories.
    pub fn gather(&mut self, running: RunningMembers) -> io::Result<()> {
        for thread in running.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a member of the mesh panicked"))??;
        }
        running.files.iter().try_for_each(|file| self.collect(file))
    }

    fn collect(&mut self, file: &Path) -> io::Result<()> {
        let read = MemberHistory::read(file)?;
        self.entries.sent.extend(read.sent);
        self.entries.pushed.extend(read.pushed);
        Ok(())
    }

    /// While the disk is healthy, the broker never blames its ledger.
    pub fn no_trouble(&self, round: u64, findings: &mut Findings) {
        let prefix = format!("r{round}-");
        let recent = self.entries.sent.iter();
        for sent in recent.filter(|sent| sent.id.starts_with(&prefix)) {
            let is_healthy = sent.code().is_none_or(|code| code < 500);
            findings.check(Promise::HealthyAnswers, is_healthy, || format!("{sent:?}"));
        }
    }

    /// Repeats the messages of a round after the restart, and compares all answers. An id without an answer is repeated with
    /// each of its contents, because any of them may be the stored one.
    pub fn check_round(
        &mut self,
        round: u64,
        http: &Http,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let prefix = format!("r{round}-");
        let accepted = checks::accepted(&self.entries);
        let repeated: BTreeMap<String, BTreeSet<String>> = checks::by_id(&self.entries)
            .into_iter()
            .filter(|(id, _)| id.starts_with(&prefix))
            .map(|(id, sent)| {
                let bodies = match accepted.get(id) {
                    Some(accepted) => BTreeSet::from([accepted.body.clone()]),
                    None => sent.iter().map(|sent| sent.body.clone()).collect(),
                };
                (id.to_owned(), bodies)
            })
            .collect();
        let members = self.members();
        let to = members.recipient.0.pubkey();
        for (index, (sender, membership)) in members.senders.iter().enumerate() {
            let file = history_file(&self.folder, &format!("{round}-repeats-{index}"));
            let mut history = MemberHistory::open(&file)?;
            let mut connection = MemberConnection::open(http, sender, membership, None)?;
            let own = format!("r{round}-s{index}-");
            let own = repeated.iter().filter(|(id, _)| id.starts_with(&own));
            for (id, body) in own.flat_map(|(id, bodies)| bodies.iter().map(move |body| (id, body)))
            {
                let ack = connection.send(&to, id, body, &mut history)?;
                ack.ok_or_else(|| io::Error::other("the broker closed after the fault"))?;
            }
            drop(history);
            self.collect(&file)?;
        }
        checks::check_ids(&self.entries, findings);
        checks::check_pushed(&self.entries, findings);
        Ok(())
    }

    /// Lets the recipient take everything that waits, and checks that every accepted message has reached it.
    pub fn check_all(&mut self, http: &Http, findings: &mut Findings) -> io::Result<()> {
        let mut running = RunningMembers {
            files: Vec::new(),
            threads: Vec::new(),
        };
        let end: Arc<AtomicBool> = Arc::default();
        let only = Endpoints::nodes(vec![Http::new(http.authority())], 0, Arc::clone(&end));
        let recipient = self.recipient(0, 100, only, &mut running)?;
        let work = thread::spawn(move || recipient.work());
        running.threads.push(work);
        let file = running.files[0].clone();
        let deadline = Instant::now() + END_LIMIT;
        let mut waiting: BTreeSet<String> = checks::missing(&self.entries)
            .into_iter()
            .map(str::to_owned)
            .collect();
        while !waiting.is_empty() && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
            // The last line may be incomplete while it is written.
            if let Ok(read) = MemberHistory::read(&file) {
                for pushed in &read.pushed {
                    waiting.remove(&pushed.message_id);
                }
            }
        }
        end.store(true, Ordering::Relaxed);
        self.gather(running)?;
        let missing = checks::missing(&self.entries);
        findings.check(Promise::MeshReached, missing.is_empty(), || {
            format!("accepted and never received: {missing:?}")
        });
        checks::check_pushed(&self.entries, findings);
        Ok(())
    }
}

impl RunningMembers {
    fn history(&mut self, folder: &Path, name: &str) -> io::Result<MemberHistory> {
        let file = history_file(folder, name);
        let history = MemberHistory::open(&file)?;
        self.files.push(file);
        Ok(history)
    }
}

fn history_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("mesh-{name}.jsonl"))
}

/// Repeats the request for a while: a defective server may answer before it has stored what the request needs.
fn demand(http: &mut Http, path: &str, body: &Value) -> io::Result<Value> {
    let mut reply = http.post(path, body)?;
    for _ in 0..TRIES_MAX {
        if (200..300).contains(&reply.status) {
            return Ok(reply.json());
        }
        thread::sleep(TRY_AGAIN);
        reply = http.post(path, body)?;
    }
    let (status, text) = (reply.status, reply.text());
    Err(io::Error::other(format!(
        "{path} returned {status}: {text}"
    )))
}
