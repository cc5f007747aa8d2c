//! A shop whose agents sign and execute: a server process, a rail beside it, and the final state of both.
#![cfg(feature = "planted")]

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use consign_testkit::process::{Http, Options, Reply, Server};
use consign_transactions::instant;
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::transactions_localstripe::{self, LocalStripe};
use super::transactions_till::{self, Keys, Till};
use super::{Place, start};

const SITE: &str = "https://shop.example";
/// The time limit for the completion of a transaction on a busy machine.
const IN_THE_END: Duration = Duration::from_secs(30);

thread_local! {
    /// The rail of the shop that this test opened last. Intents name it, and no other rail executes them.
    static RAIL: RefCell<String> = RefCell::new("http".to_owned());
}

/// The rail of a shop, which is a separate process or thread.
pub(crate) enum Rail {
    Till(Till),
    Stripe(LocalStripe),
}

impl Rail {
    /// All rails: one honours idempotency keys, two do not.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        let tills = [Keys::Honoured, Keys::Ignored].into_iter();
        let tills = tills.map(|keys| Self::Till(Till::open(keys)));
        tills.chain(std::iter::once_with(|| Self::Stripe(LocalStripe::start())))
    }

    pub(crate) fn charges(&self) -> usize {
        match self {
            Self::Till(till) => till.charges(),
            Self::Stripe(stripe) => stripe.charges(),
        }
    }

    pub(crate) fn refunds(&self) -> usize {
        match self {
            Self::Till(till) => till.refunds(),
            Self::Stripe(stripe) => stripe.refunds(),
        }
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Till(till) => till_variables(till),
            Self::Stripe(stripe) => vec![
                ("ATP_RAIL", "stripe".to_owned()),
                ("ATP_STRIPE_BASE", stripe.base()),
                (
                    "ATP_STRIPE_SECRET",
                    transactions_localstripe::SECRET.to_owned(),
                ),
            ],
        }
    }
}

fn till_variables(till: &Till) -> Vec<(&'static str, String)> {
    vec![
        ("ATP_RAIL", "http".to_owned()),
        ("ATP_HTTP_BASE", till.base.clone()),
        ("ATP_HTTP_SECRET", transactions_till::SECRET.to_owned()),
    ]
}

/// The location of a shop's ledger, and the variables of its servers.
pub(crate) struct Shop {
    pub(crate) place: Place,
    variables: Vec<(&'static str, String)>,
}

impl Shop {
    pub(crate) fn at(rail: &Rail) -> Self {
        Self::with(rail.variables())
    }

    pub(crate) fn at_till(till: &Till) -> Self {
        Self::with(till_variables(till))
    }

    fn with(mut variables: Vec<(&'static str, String)>) -> Self {
        for (name, value) in &variables {
            if *name == "ATP_RAIL" {
                RAIL.set(value.clone());
            }
        }
        variables.extend([
            ("ATP_SITE", SITE.to_owned()),
            ("ATP_SWEEP_SECONDS", "0.2".to_owned()),
            ("ATP_SETTLE_DELAY_SECONDS", "0.2".to_owned()),
            ("ATP_EXECUTE_WAIT_SECONDS", "2".to_owned()),
        ]);
        Self {
            place: Place::new(),
            variables,
        }
    }

    /// A restarted server identifies its earlier leases on any database by its data directory.
    pub(crate) fn options(&self) -> Options {
        self.node("one", self.place.options())
    }

    pub(crate) fn node(&self, name: &str, options: Options) -> Options {
        let named = options.arg("--node-name").arg(name);
        let variables = self.variables.iter();
        variables.fold(named, |options, (name, value)| options.env(name, value))
    }

    pub(crate) fn start(&self) -> Server {
        start(&self.options())
    }
}

fn now() -> Micros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("it is after 1970").as_micros();
    Micros(i64::try_from(since).expect("it is before the year 294000"))
}

/// The secret seed of the agent.
pub(crate) const AGENT_SEED: [u8; 32] = [0x22; 32];

fn agent() -> Signer {
    Signer::from_seed(&AGENT_SEED)
}

/// An intent with a lifetime of ten minutes.
pub(crate) fn intent(id: &str) -> Value {
    let now = now();
    json!({
        "type": "atp.intent.v1",
        "intent_id": id,
        "site": SITE,
        "agent_key": format!("ed25519:{}", BASE64.encode(&agent().public_key())),
        "purpose": "a book",
        "scope": {"actions": ["pay"]},
        "amount_cents": 1500,
        "currency": "EUR",
        "max_spend_cents": 150_000,
        "nonce": format!("nonce-of-{id}"),
        "issued_at": instant::print(now),
        "expires_at": instant::print(now.plus(600 * SECOND_US)),
        "rail": {"name": RAIL.with_borrow(Clone::clone), "payment_method": "pm_card_visa"},
    })
}

pub(crate) fn signed(mut intent: Value) -> Value {
    let bytes = canonical_value(&intent).expect("it has one form");
    intent["signature"] = BASE64.encode(&agent().sign_bytes(&bytes)).into();
    intent
}

/// The key that an agent uses for all operations on an intent.
pub(crate) fn key(id: &str) -> String {
    format!("key-of-the-agent-for-{id}")
}

/// A request of the agent for this operation, issued now, with this key.
pub(crate) fn requested(verb: &str, key: &str, members: &Value) -> Value {
    let mut body = members.clone();
    body["type"] = format!("atp.{verb}.v1").into();
    body["site"] = SITE.into();
    body["issued_at"] = instant::print(now()).into();
    body["idempotency_key"] = key.into();
    signed(body)
}

/// Signs the request if the operation requires it.
pub(crate) fn ask(http: &mut Http, verb: &str, key: &str, body: &Value) -> io::Result<Reply> {
    let headers = [("Idempotency-Key", key)];
    let body = match verb {
        "execute" | "compensate" | "cancel" => &requested(verb, key, body),
        _ => body,
    };
    http.send("POST", &format!("/api/atp/{verb}"), &headers, Some(body))
}

/// Creates and authorizes in one step.
pub(crate) fn authorize(server: &Server, intent: Value) {
    let id = intent["intent_id"].as_str().unwrap_or_default().to_owned();
    let reply = ask(&mut server.http(), "authorize", &key(&id), &signed(intent));
    let reply = reply.expect("the server answers");
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The response may be lost together with the server.
pub(crate) fn execute(server: &Server, id: &str, key: &str) -> io::Result<Reply> {
    let mut http = server.http().patience(IN_THE_END);
    ask(&mut http, "execute", key, &json!({"intent_id": id}))
}

pub(crate) fn compensate(server: &Server, id: &str) -> io::Result<Reply> {
    let mut http = server.http().patience(IN_THE_END);
    let body = json!({"intent_id": id, "reason": "changed my mind"});
    ask(&mut http, "compensate", &key(id), &body)
}

/// Repeats the execution with the same key, as an agent does, until this state is reached.
pub(crate) fn executed_until(server: &Server, id: &str, state: &str) -> Value {
    until(state, || execute(server, id, &key(id)))
}

pub(crate) fn compensated(server: &Server, id: &str) -> Value {
    until("compensated", || compensate(server, id))
}

fn until(state: &str, mut ask: impl FnMut() -> io::Result<Reply>) -> Value {
    let deadline = Instant::now() + IN_THE_END;
    loop {
        let reply = ask().expect("the server answers");
        let told = reply.json();
        if told["state"] == state {
            return told;
        }
        let patient = reply.status < 300 && Instant::now() < deadline;
        assert!(patient, "not {state}: {} {}", reply.status, reply.text());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The state of an intent, read without side effects.
pub(crate) fn state(server: &Server, id: &str) -> Value {
    let path = format!("/api/atp/intents/{id}");
    super::get(&mut server.http(), &path).json()["state"].clone()
}

/// Sends no further execute request: the server completes the transaction by itself.
pub(crate) fn wait_until_settled(server: &Server, id: &str) {
    let deadline = Instant::now() + IN_THE_END;
    while state(server, id) != "settled" {
        assert!(Instant::now() < deadline, "nobody settles {id}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The documents that the site has signed for an intent.
pub(crate) fn receipts(server: &Server, id: &str) -> Vec<Value> {
    let path = format!("/api/atp/intents/{id}/receipts");
    let told = super::get(&mut server.http(), &path).json();
    told["receipts"].as_array().expect("a list").clone()
}
