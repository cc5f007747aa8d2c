//! Requests that many tests send, and one-line assertions on error responses.

use consign_engine::Engine;
use consign_kernel::command::{Command, Restore};
use consign_kernel::ids::{DAY_US, IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::profile::{LifeEnd, ProfileId};
use consign_kernel::state::{Cause, State};
use serde_json::{Value, json};

use crate::world::{Answer, Call, MAIN, World};

impl World {
    /// Posts JSON with the main key.
    pub(crate) async fn main_post(&self, uri: &str, body: &Value) -> Answer {
        self.send(Call::post(uri).key(MAIN).json(body)).await
    }

    pub(crate) async fn main_get(&self, uri: &str) -> Answer {
        self.send(Call::get(uri).key(MAIN)).await
    }

    /// Posts JSON as an operator.
    pub(crate) async fn admin_post(&self, uri: &str, body: &Value) -> Answer {
        self.send(Call::post(uri).admin().json(body)).await
    }

    pub(crate) async fn admin_get(&self, uri: &str) -> Answer {
        self.send(Call::get(uri).admin()).await
    }

    /// Publishes and claims with the main key. Returns the id and the token.
    pub(crate) async fn leased(&self, body: Value) -> (String, String) {
        let id = self.publish(body).await;
        let job = self.claim().await.expect("just published");
        assert_eq!(job["id"], id.as_str(), "something else was waiting");
        (id, text(&job["claim_token"]))
    }

    /// Publishes an intent and fails its only attempt. Returns the id.
    pub(crate) async fn dead_letter(&self, goal: &str, error: &str) -> String {
        let body = json!({"goal": goal, "payload": {"goal": goal}, "max_attempts": 1});
        let (id, token) = self.leased(body).await;
        let failure = json!({"claim_token": token, "error": error});
        let failed = self.main_post(&format!("/fail/{id}"), &failure).await;
        assert_eq!(failed.status, 200, "{}", failed.text());
        id
    }

    /// Publishes, claims and fulfils with a result. Returns the id.
    pub(crate) async fn fulfilled(&self, goal: &str, result: Value) -> String {
        let (id, token) = self.leased(json!({"goal": goal, "payload": 1})).await;
        let done = json!({"claim_token": token, "result": result});
        let answer = self.main_post(&format!("/fulfill/{id}"), &done).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        id
    }
}

impl Answer {
    /// An error response with this status and code, in the common format.
    #[track_caller]
    pub(crate) fn assert_refused(&self, status: u16, code: &str) {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{}", self.text());
        assert_eq!(body["error"]["code"], code, "{}", self.text());
        let message = body["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty(), "a refusal says why");
    }

    #[track_caller]
    pub(crate) fn assert_ok(&self, body: &Value) {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(&self.json(), body);
    }
}

/// The text of a JSON string.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// The keys of an object in their order in the text.
pub(crate) fn keys_as_written(object: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let (mut depth, mut string, mut escaped, mut from) = (0, false, false, 0);
    for (at, byte) in object.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => {
                string = !string;
                if string {
                    from = at + 1;
                } else if depth == 1 && object.as_bytes().get(at + 1) == Some(&b':') {
                    keys.push(object[from..at].to_owned());
                }
            }
            b'{' | b'[' if !string => depth += 1,
            b'}' | b']' if !string => depth -= 1,
            _ => {}
        }
    }
    keys
}

/// Inserts a public, long expired row of another face. If it belonged to this face, cleanup would delete it.
pub(crate) async fn plant_foreign_row(engine: &Engine, profile: ProfileId) -> IntentId {
    let now = engine.now();
    let expires_at = match profile.profile().life_end {
        // With an expiry in the past, any read would end or remove it.
        LifeEnd::Dead { .. } | LifeEnd::Remove => now.plus(DAY_US),
        LifeEnd::Park | LifeEnd::Never => now.minus(20 * DAY_US),
    };
    let intent = Intent {
        seq: Seq(0),
        id: IntentId([0xab; 16]),
        profile,
        namespace: "default".to_owned(),
        goal: "foreign".to_owned(),
        owner: "main".to_owned(),
        public: true,
        target: None,
        capability: None,
        priority: 1_000,
        payload: "{}".to_owned(),
        ties: consign_kernel::intent::Ties::default(),
        traceparent: None,
        attempts: 1,
        attempts_max: 1,
        backoff_us: SECOND_US,
        created_at: now.minus(30 * DAY_US),
        run_at: now.minus(30 * DAY_US),
        expires_at,
        state: State::Queued,
        cause: Cause::None,
        shelf: Shelf::Parked,
        wake_at: Micros::MAX,
        holder: None,
        token: None,
        claimed_at: None,
        lease_until: None,
        settled_at: None,
        last_error: Some("left alone".to_owned()),
        result: None,
        last_fact: None,
        worker: None,
    };
    let id = intent.id;
    let restore = Command::Restore(Box::new(Restore::bare(intent)));
    engine.apply(None, restore).await.unwrap();
    id
}

/// Whether the row is unchanged.
pub(crate) async fn foreign_row_is_untouched(engine: &Engine, id: IntentId) -> bool {
    engine.observe(id).await.unwrap().is_some_and(|row| {
        row.state == State::Queued && row.last_error.as_deref() == Some("left alone")
    })
}
