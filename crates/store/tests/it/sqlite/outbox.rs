//! The table `outbox` of a mesh daemon: in step with the ledger, and edited by other programs while the file is closed.

use std::path::PathBuf;
use std::sync::Arc;

use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, NewIntent, OnceGuard, Operate, Settlement,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Ties};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{Cause, State};
use consign_store::conformance::{self, ManualClock, START, in_face};
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Error, SharedStore};
use rusqlite::Connection;
use tempfile::TempDir;

const MESH: &str = "home";
/// The start of a case in Unix milliseconds.
const START_MS: i64 = START.0 / 1_000;

struct Daemon {
    folder: Arc<TempDir>,
    clock: Arc<ManualClock>,
    store: Arc<Sqlite>,
}

fn open(path: PathBuf, clock: &Arc<ManualClock>) -> Result<Sqlite, Error> {
    Sqlite::open_outbox(Options {
        path,
        clock: clock.clone(),
        queue_max: QUEUE_REQUESTS_MAX,
    })
}

impl Daemon {
    fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::default());
        let store = open(folder.path().join("outbox.db"), &clock).unwrap();
        Self {
            folder,
            clock,
            store: Arc::new(store),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("outbox.db")
    }

    fn other_program(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    fn world(&self) -> conformance::World {
        let store: SharedStore = self.store.clone();
        conformance::World::new(store, self.clock.clone(), Arc::clone(&self.folder))
    }

    /// Closes the file, lets another program edit it, and opens it again.
    fn edited(self, sql: &str) -> Self {
        self.store.close();
        self.other_program().execute_batch(sql).unwrap();
        let store = open(self.path(), &self.clock).unwrap();
        Self {
            store: Arc::new(store),
            ..self
        }
    }

    fn text(&self, sql: &str) -> String {
        let found = self
            .other_program()
            .query_row(sql, [], |row| row.get::<_, Option<String>>(0));
        found.unwrap().unwrap_or_else(|| "NULL".to_owned())
    }

    fn of(&self, column: &str, client_id: &str) -> String {
        self.text(&format!(
            "SELECT CAST({column} AS TEXT) FROM outbox WHERE client_message_id = '{client_id}'"
        ))
    }

    async fn enqueue(&self, client_id: &str, fingerprint: u8, parent: Option<IntentId>) -> Answer {
        let item = NewIntent {
            namespace: MESH.to_owned(),
            owner: MESH.to_owned(),
            payload: format!(
                r#"{{"client_message_id":"{client_id}","request_fingerprint":"{}","payload":"6869","mesh":"{MESH}","target_spec":"*","priority":"next","envelope_version":1}}"#,
                format!("{fingerprint:02x}").repeat(32)
            ),
            once: Some(OnceGuard {
                key: OnceKey {
                    scope: Scope::MeshOutbox,
                    owner: MESH.to_owned(),
                    key: client_id.to_owned(),
                },
                fingerprint: [fingerprint; 32],
                lifetime_us: i64::MAX,
            }),
            ties: Ties {
                parent,
                ..Ties::default()
            },
            ..in_face(ProfileId::MeshOutbox)
        };
        let admit = Admit {
            items: vec![item],
            cap: None,
        };
        self.world().step(Command::Admit(admit)).await.unwrap()
    }

    async fn accept(&self, client_id: &str) -> IntentId {
        let Answer::Admitted(mut admitted) = self.enqueue(client_id, 7, None).await else {
            panic!("an admission has another answer");
        };
        admitted.remove(0).id
    }

    async fn claim(&self) -> Vec<Intent> {
        let claim = Claim {
            face: Face::Mesh,
            namespace: MESH.to_owned(),
            goal: None,
            holder: "daemon".to_owned(),
            audience: Audience::Publisher(MESH.to_owned()),
            worker_id: None,
            capabilities: Vec::new(),
            max: 32,
            lease_us: 15 * SECOND_US,
            grant: None,
        };
        match self.world().step(Command::Claim(claim)).await {
            Ok(Answer::Claimed(rows)) => rows,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn cm_076_cm_077_the_table_is_in_step_with_every_commit() {
    let daemon = Daemon::new();
    let id = daemon.accept("c-1").await;
    let hex = daemon.of("replace(id, '-', '')", "c-1");
    assert_eq!(hex, id.to_string());
    assert_eq!(daemon.of("status", "c-1"), "pending");
    assert_eq!(
        daemon.of("hex(request_fingerprint)", "c-1"),
        "07".repeat(32)
    );
    assert_eq!(daemon.of("payload", "c-1"), "hi");
    assert_eq!(daemon.of("enqueued_at", "c-1"), START_MS.to_string());
    assert_eq!(daemon.of("target_spec || envelope_version", "c-1"), "*1");
    let held = daemon.claim().await.remove(0);
    assert_eq!(daemon.of("status || attempts", "c-1"), "inflight1");
    let later = Settlement::RetryLater {
        after_us: 500_000,
        error: Some("timeout".to_owned()),
    };
    daemon.world().settle(&held, later).await.unwrap();
    assert_eq!(daemon.of("status || last_error", "c-1"), "pendingtimeout");
    let due = (START_MS + 500).to_string();
    assert_eq!(daemon.of("next_attempt_at", "c-1"), due);
    daemon.clock.advance(SECOND_US);
    let held = daemon.claim().await.remove(0);
    let result = Some(Outcome {
        kind: ResultKind::Json,
        body: r#"{"broker_message_id":"b-1","history_id":"9"}"#.to_owned(),
    });
    let done = Settlement::Complete { result };
    daemon.world().settle(&held, done).await.unwrap();
    assert_eq!(
        daemon.of(
            "status || attempts || broker_message_id || history_id",
            "c-1"
        ),
        "done2b-19"
    );
    assert_eq!(
        daemon.of("delivered_at", "c-1"),
        (START_MS + 1_000).to_string()
    );
    daemon.world().is_sound().await;
    let columns = "SELECT group_concat(name, ' ') FROM pragma_table_info('outbox')";
    assert_eq!(
        daemon.text(columns),
        "id client_message_id request_fingerprint payload enqueued_at attempts next_attempt_at status last_error \
         delivered_at broker_message_id aborted_at aborted_by superseded_by mesh target_spec nonce ciphertext priority \
         destination_kind destination_ref reply_to_id meta body_sha256 envelope_version history_id"
    );
}

#[tokio::test]
async fn cm_079_an_aborted_row_names_the_one_that_replaces_it() {
    let daemon = Daemon::new();
    let old = daemon.accept("c-1").await;
    let cancel = Command::Cancel(Operate {
        id: old,
        face: Face::Mesh,
        reason: "requeued".to_owned(),
    });
    daemon.world().step(cancel).await.unwrap();
    daemon.enqueue("c-2", 7, Some(old)).await;
    assert_eq!(daemon.of("status || aborted_by", "c-1"), "abortedoperator");
    assert_eq!(daemon.of("superseded_by", "c-1"), daemon.of("id", "c-2"));
    assert_eq!(daemon.of("aborted_at", "c-1"), START_MS.to_string());
    assert_eq!(daemon.of("superseded_by", "c-2"), "NULL");
    daemon.world().is_sound().await;
}

#[tokio::test]
async fn edits_of_the_table_become_a_part_of_the_ledger() {
    let daemon = Daemon::new();
    for id in ["older", "dead", "stuck", "done", "other", "gone"] {
        daemon.accept(id).await;
    }
    let dump = daemon.store_dump().await;
    let daemon = daemon.edited("SELECT 1");
    assert_eq!(daemon.store_dump().await, dump, "nothing was edited");
    let daemon = daemon.edited(
        "UPDATE outbox SET enqueued_at = enqueued_at - 80000000, attempts = 4 WHERE client_message_id = 'older'; \
         UPDATE outbox SET status = 'dead', last_error = 'by hand' WHERE client_message_id = 'dead'; \
         UPDATE outbox SET status = 'inflight', attempts = 1 WHERE client_message_id = 'stuck'; \
         UPDATE outbox SET status = 'done', delivered_at = 7, broker_message_id = 'b' WHERE client_message_id = 'done'; \
         UPDATE outbox SET request_fingerprint = zeroblob(32) WHERE client_message_id = 'other'; \
         DELETE FROM outbox WHERE client_message_id = 'gone'; \
         INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at, next_attempt_at, status, mesh) \
         VALUES ('01HQX2J6K7M8N9P0Q1R2S3T4V5', 'added', zeroblob(32), 'body', 1700000000123, 1700000000123, 'pending', 'home')",
    );
    daemon.world().is_sound().await;
    let dump = daemon.store_dump().await;
    let row = |client_id: &str| {
        let id = daemon.of("replace(id, '-', '')", client_id);
        let row = dump.intents.iter().find(|row| row.id.to_string() == id);
        row.unwrap().clone()
    };
    let older = row("older");
    assert_eq!(older.attempts, 4);
    assert_eq!(older.created_at.0, START.0 - 80_000_000_000);
    assert_eq!(older.expires_at, older.created_at.plus(DAY_US));
    let dead = row("dead");
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Rejected)
    );
    assert_eq!(dead.last_error.as_deref(), Some("by hand"));
    assert_eq!(row("stuck").state, State::Dispatched);
    let done = row("done");
    assert_eq!(
        (done.state, done.settled_at.unwrap().0),
        (State::Acked, 7_000)
    );
    assert_eq!(daemon.of("broker_message_id || delivered_at", "done"), "b7");
    let added = row("added");
    assert_eq!(added.created_at.0, 1_700_000_000_123_000);
    assert_eq!(daemon.of("payload || status", "added"), "bodypending");
    assert_eq!(
        daemon.text("SELECT CAST(count(*) AS TEXT) FROM outbox"),
        "6"
    );

    // Ids are used as the table says: a deleted one is free, an added one and a changed fingerprint are not.
    assert!(
        matches!(daemon.enqueue("gone", 7, None).await, Answer::Admitted(admitted) if !admitted[0].replayed)
    );
    for (id, fingerprint) in [("added", 0), ("other", 0), ("dead", 7)] {
        let replayed = daemon.enqueue(id, fingerprint, None).await;
        assert!(
            matches!(replayed, Answer::Admitted(admitted) if admitted[0].replayed),
            "{id}"
        );
    }
    // The stuck row is due again after the pause of a resend.
    daemon.clock.advance(SECOND_US);
    let sweep = consign_kernel::command::Sweep { limit: 9 };
    daemon.world().step(Command::Sweep(sweep)).await.unwrap();
    assert_eq!(daemon.of("status", "stuck"), "pending");
    daemon.clock.advance(SECOND_US);
    let due = daemon.claim().await;
    assert_eq!(due.len(), 5, "older, stuck, other, added and gone");
    daemon.world().is_sound().await;
}

#[tokio::test]
async fn an_edit_that_contradicts_itself_changes_nothing_and_keeps_the_file_closed() {
    let daemon = Daemon::new();
    daemon.accept("c-1").await;
    daemon.store.close();
    let short = "UPDATE outbox SET request_fingerprint = x'00', status = 'dead'";
    daemon.other_program().execute_batch(short).unwrap();
    let refused = open(daemon.path(), &daemon.clock).unwrap_err();
    assert!(refused.to_string().contains("fingerprint"), "{refused}");
    let mended = "UPDATE outbox SET request_fingerprint = zeroblob(32), status = 'pending'";
    let daemon = daemon.edited(mended);
    let again = Refusal::OnceConflict { index: 0 };
    let conflict = daemon.world().step(daemon_admit("c-1", 7)).await;
    assert_eq!(conflict, Err(again));
}

fn daemon_admit(client_id: &str, fingerprint: u8) -> Command {
    Command::Admit(Admit {
        items: vec![NewIntent {
            namespace: MESH.to_owned(),
            owner: MESH.to_owned(),
            once: Some(OnceGuard {
                key: OnceKey {
                    scope: Scope::MeshOutbox,
                    owner: MESH.to_owned(),
                    key: client_id.to_owned(),
                },
                fingerprint: [fingerprint; 32],
                lifetime_us: i64::MAX,
            }),
            ..in_face(ProfileId::MeshOutbox)
        }],
        cap: None,
    })
}

impl Daemon {
    async fn store_dump(&self) -> consign_store::Dump {
        self.world().store.dump().await.unwrap()
    }
}

#[tokio::test]
async fn cm_080_the_id_of_a_removed_retired_row_stays_retired_until_it_is_free_again() {
    let daemon = Daemon::new();
    let operate = |id: IntentId, reason: &str| Operate {
        id,
        face: Face::Mesh,
        reason: reason.to_owned(),
    };
    let was_retired = async |daemon: &Daemon, id: &str| {
        let found = daemon.store.outbox_was_retired(id.to_owned()).await;
        found.unwrap()
    };
    let id = daemon.accept("c-1").await;
    let cancel = Command::Cancel(operate(id, "dropped"));
    daemon.world().step(cancel).await.unwrap();
    assert!(!was_retired(&daemon, "c-1").await, "its row says so");
    let retired = daemon.store.outbox_retired_before(i64::MAX, 9).await;
    assert_eq!(retired.unwrap().len(), 1);
    let remove = Command::Remove(operate(id, "pruned"));
    daemon.world().step(remove).await.unwrap();
    assert!(was_retired(&daemon, "c-1").await);
    let daemon = daemon.edited("SELECT 1");
    assert!(was_retired(&daemon, "c-1").await);
    // Another program frees the id, and a request uses it.
    let daemon = daemon.edited("DELETE FROM once");
    daemon.accept("c-1").await;
    assert!(!was_retired(&daemon, "c-1").await);
    daemon.world().is_sound().await;
}

#[tokio::test]
async fn free_space_is_given_back_once_a_week_however_often_the_file_is_opened() {
    let daemon = Daemon::new();
    daemon.accept("c-1").await;
    let daemon = daemon.edited(
        "CREATE TABLE filler (bytes); WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) \
         INSERT INTO filler SELECT zeroblob(100000) FROM n; DROP TABLE filler",
    );
    let bytes = |daemon: &Daemon| std::fs::metadata(daemon.path()).unwrap().len();
    assert!(daemon.store.free_bytes().await.unwrap() > 1_900_000);
    daemon.clock.advance(6 * DAY_US);
    let daemon = daemon.edited("SELECT 1").edited("SELECT 1");
    assert!(bytes(&daemon) > 1_900_000, "it is not due");
    daemon.clock.advance(2 * DAY_US);
    let daemon = daemon.edited("SELECT 1");
    assert!(bytes(&daemon) < 1_000_000, "{}", bytes(&daemon));
    assert_eq!(daemon.store.free_bytes().await.unwrap(), 0);
    assert_eq!(daemon.of("status", "c-1"), "pending");
    daemon.world().is_sound().await;
}
