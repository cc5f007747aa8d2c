//! Secrets appear in no response, no document and no log, on success and on failure.
#![cfg(feature = "planted")]

use std::time::SystemTime;

use consign_testkit::process::{Reply, Server};
use consign_transactions::rail::standard_webhooks::WebhookSecrets;
use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

use super::transactions_callbacks::NEW_SECRET;
use super::transactions_localstripe::{self, LocalStripe};
use super::transactions_till::{Keys, Manner, SECRET, Till};
use super::transactions_world::{AGENT_SEED, Rail, Shop, intent, signed};
use super::{PATIENCE, start};

/// The keys of the agent, which resemble no text that a server produces by itself.
const AUTHORIZE_KEY: &str = "zq-authorize-7f1c5b2e9d";
const EXECUTE_KEY: &str = "zq-execute-0a4d8c6b3f";
const COMPENSATE_KEY: &str = "zq-compensate-5e2f9a7c1d";
const REFUSED_KEY: &str = "zq-refused-8b6d4f2a0c";
const BODY_KEY: &str = "zq-in-the-body-3c9e1f";
const SHORT_KEY: &str = "zq-short-5d7f1b";

const WEBHOOK_SECRETS: [&str; 2] = ["whsec_zq_webhook_old", "whsec_zq_webhook_new"];

/// A server, and all its responses.
struct Said<'s> {
    server: &'s Server,
    all: Vec<String>,
}

impl Said<'_> {
    fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut http = self.server.http().patience(3 * PATIENCE);
        let body = (!body.is_null()).then_some(body);
        let reply = http.send(method, path, headers, body);
        let reply = reply.expect("the server answers");
        let text = format!("{method} {path}: {:?} {}", reply.headers, reply.text());
        self.all.push(text);
        reply
    }

    fn ask(&mut self, verb: &str, key: &str, body: &Value) -> Reply {
        let headers = [("Idempotency-Key", key)];
        self.send("POST", &format!("/api/atp/{verb}"), &headers, body)
    }

    fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], &Value::Null)
    }

    /// Sends a request as an operator, who sees more.
    fn oversee(&mut self, method: &str, path: &str) -> Reply {
        let token = self.server.secret("admin_secret").expect("it made one");
        let bearer = format!("Bearer {token}");
        let path = format!("/api/atp{path}");
        let reply = self.send(method, &path, &[("Authorization", &bearer)], &Value::Null);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply
    }

    /// A complete life cycle and both of its documents, each requested twice.
    fn live(&mut self, id: &str) {
        let whole = signed(intent(id));
        let about = json!({"intent_id": id, "reason": "changed my mind"});
        for _ in 0..2 {
            let told = self.ask("authorize", AUTHORIZE_KEY, &whole);
            assert_eq!(told.status, 200, "{}", told.text());
        }
        for _ in 0..2 {
            let told = self.ask("execute", EXECUTE_KEY, &json!({"intent_id": id}));
            assert_eq!(told.json()["state"], "settled", "{}", told.text());
        }
        for _ in 0..2 {
            let told = self.ask("compensate", COMPENSATE_KEY, &about);
            assert_eq!(told.json()["state"], "compensated", "{}", told.text());
        }
        let told = self
            .ask("execute", EXECUTE_KEY, &json!({"intent_id": id}))
            .json();
        for member in ["receipt", "compensation_receipt"] {
            let receipt = told[member]["receipt_id"].as_str().expect("it has an id");
            self.get(&format!("/api/atp/receipts/{receipt}"));
            self.ask("receipts/verify", "", &told[member]);
        }
        let transaction = told["transaction_id"].as_str().expect("it has an id");
        self.get(&format!("/api/atp/transactions/{transaction}"));
        self.get(&format!("/api/atp/intents/{id}"));
        self.get(&format!("/api/atp/intents/{id}/receipts"));
    }

    /// Every kind of refusal that involves a key.
    fn be_refused(&mut self, id: &str) {
        let about = json!({"intent_id": id, "reason": "r"});
        let other = json!({"intent_id": id, "amount_cents": 1});
        let both = json!({"intent_id": id, "idempotency_key": BODY_KEY});
        for (verb, key, body, status) in [
            ("execute", EXECUTE_KEY, &other, 422),
            ("execute", REFUSED_KEY, &about, 409),
            ("execute", SHORT_KEY, &about, 400),
            ("execute", REFUSED_KEY, &both, 400),
            ("compensate", REFUSED_KEY, &about, 409),
            ("authorize", REFUSED_KEY, &signed(intent(id)), 409),
            ("authorize", REFUSED_KEY, &about, 400),
            (
                "execute",
                REFUSED_KEY,
                &json!({"intent_id": "int_none"}),
                404,
            ),
        ] {
            let refused = self.ask(verb, key, body);
            assert_eq!(refused.status, status, "{verb} {body}: {}", refused.text());
        }
        let in_the_body = self.send("POST", "/api/atp/execute", &[], &both);
        assert_eq!(in_the_body.status, 409, "{}", in_the_body.text());
    }

    fn be_overseen(&mut self) {
        self.oversee("POST", "/admin/reconcile");
        self.oversee("POST", "/admin/keys/announce");
        self.oversee("POST", "/admin/keys/rotate");
        for path in ["/admin/audit", "/admin/transactions", "/intents"] {
            let listed = self.oversee("GET", path);
            assert!(listed.text().contains("int_"), "{path} is empty");
        }
        for path in [
            "/api/atp/keys",
            "/api/atp/health",
            "/.well-known/wab.json",
            "/.well-known/wab-revocations.json",
            "/.well-known/jwks.json",
            "/health",
            "/metrics",
            "/openapi.json",
        ] {
            self.get(path);
        }
    }

    /// Neither the responses nor the output and log of the server contain any of these secrets.
    fn assert_silent_about(mut self, secrets: &[&str]) {
        let log = self.server.stderr();
        assert!(
            log.contains("/api/atp/execute"),
            "it logs no requests: {log}"
        );
        self.all.extend(log.lines().map(str::to_owned));
        self.all.extend(self.server.stdout_lines());
        let own = ["admin_secret", "bus_secret"];
        let own = own.map(|name| self.server.secret(name).expect("it made one"));
        let agent = [BASE64.encode(&AGENT_SEED), HEXLOWER.encode(&AGENT_SEED)];
        let keys = [
            AUTHORIZE_KEY,
            EXECUTE_KEY,
            COMPENSATE_KEY,
            REFUSED_KEY,
            BODY_KEY,
            SHORT_KEY,
        ];
        let known = own.iter().chain(&agent).map(String::as_str);
        for secret in known.chain(keys).chain(secrets.iter().copied()) {
            for said in &self.all {
                assert!(!said.contains(secret), "{secret} is in {said}");
            }
        }
    }
}

/// A callback of the till, signed with this secret.
fn tell(said: &mut Said<'_>, secret: &str) -> u16 {
    let body =
        json!({"type": "payment.updated", "data": {"payment_id": "p_0", "status": "succeeded"}});
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("it is after 1970").as_secs();
    let at_s = i64::try_from(since).expect("it is not that late");
    let secrets = WebhookSecrets::new([secret]).expect("it is a secret");
    let signature = secrets.sign("event", at_s, body.to_string().as_bytes());
    let headers = [
        ("webhook-id", "event"),
        ("webhook-timestamp", &*at_s.to_string()),
        ("webhook-signature", &signature),
    ];
    said.send("POST", "/api/atp/rails/http/callback", &headers, &body)
        .status
}

#[test]
fn at_105_no_key_and_no_secret_is_in_any_answer_document_list_or_log() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let options = shop.options().env("RUST_LOG", "debug");
    // Also without signed requests, the server repeats no key.
    let options = options.env("ATP_SIGNED_REQUESTS", "false");
    let server = start(&options);
    let mut said = Said {
        server: &server,
        all: Vec::new(),
    };
    said.live("int_abc");
    said.be_refused("int_abc");
    // The rail is unreachable, responds with garbage, and refuses.
    for (id, manner) in [("int_away", Manner::Away), ("int_garbage", Manner::Garbage)] {
        said.ask("authorize", AUTHORIZE_KEY, &signed(intent(id)));
        till.answer("prepare", manner);
        till.answer("lookup", manner);
        let told = said.ask("execute", EXECUTE_KEY, &json!({"intent_id": id}));
        assert_eq!(told.status, 202, "{}", told.text());
        till.be_plain();
    }
    assert_eq!(tell(&mut said, NEW_SECRET), 400);
    assert_eq!(tell(&mut said, SECRET), 200);
    said.be_overseen();
    let shared = SECRET.trim_start_matches("whsec_");
    said.assert_silent_about(&[SECRET, shared]);
}

#[test]
fn at_105_no_secret_of_stripe_is_in_any_answer_document_list_or_log() {
    let rail = Rail::Stripe(LocalStripe::start());
    let shop = Shop::at(&rail);
    let webhooks = WEBHOOK_SECRETS.join(",");
    let options = shop.options().env("RUST_LOG", "debug");
    // Also without signed requests, the server repeats no key.
    let options = options.env("ATP_SIGNED_REQUESTS", "false");
    let server = start(&options.env("ATP_STRIPE_WEBHOOK_SECRET", &webhooks));
    let mut said = Said {
        server: &server,
        all: Vec::new(),
    };
    said.live("int_abc");
    let forged = [("Stripe-Signature", "t=1,v1=00")];
    let path = "/api/atp/rails/stripe/callback";
    assert_eq!(
        said.send("POST", path, &forged, &json!({"id": "e"})).status,
        400
    );
    said.be_overseen();
    let [old, new] = WEBHOOK_SECRETS;
    said.assert_silent_about(&[transactions_localstripe::SECRET, old, new]);
}
