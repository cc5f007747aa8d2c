//! The switches of the whole server, and the response of a handler that panics.

use std::sync::Arc;

use consign_transactions::problem::Problem;
use consign_transactions::rail::{
    CallbackHint, CallbackMessage, Charge, Fenced, NullRail, Rail, RailFuture, RailReport,
    RefundOutcome,
};
use consign_web::listener_policy::ListenerPolicy;

use crate::world::{Setup, World};

const BEARER: (&str, &str) = ("Authorization", "Bearer admin-secret-of-the-tests");
/// Marks a request as coming from another machine.
const FORWARDED: (&str, &str) = ("X-Forwarded-For", "203.0.113.9");
/// Marks a request as coming from this machine.
const LOCAL: (&str, &str) = ("Host", "127.0.0.1:7070");
const CLIENTS: [(&str, &str); 8] = [
    ("POST", "/api/atp/intents"),
    ("GET", "/api/atp/intents"),
    ("GET", "/api/atp/intents/int_abc"),
    ("POST", "/api/atp/execute"),
    ("POST", "/api/atp/receipts/verify"),
    ("POST", "/api/atp/rails/null/callback"),
    ("GET", "/api/atp/keys"),
    ("GET", "/api/atp/nothing"),
];

async fn behind(policy: ListenerPolicy) -> World {
    let setup = Setup {
        policy,
        ..Setup::default()
    };
    World::with(setup).await
}

#[tokio::test]
async fn maintenance_lets_only_operators_in() {
    let world = behind(ListenerPolicy {
        maintenance: true,
        ..ListenerPolicy::default()
    })
    .await;
    for (method, path) in CLIENTS {
        let refused = world.send(method, path, &[], "{}").await;
        assert_eq!(refused.status, 503, "{path}");
        assert_eq!(refused.json()["error"], "maintenance", "{path}");
        assert_eq!(refused.json()["ok"], false);
        assert!(refused.headers.contains_key("retry-after"), "{path}");
    }
    for path in ["/api/atp/health", "/.well-known/wab.json"] {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
    for path in ["/api/atp/admin/audit", "/api/atp/intents"] {
        let shown = world.send("GET", path, &[BEARER], "").await;
        assert_eq!(shown.status, 200, "{path}");
    }
    let stranger = world.get("/api/atp/admin/audit").await;
    assert_eq!(stranger.status, 401);
}

#[tokio::test]
async fn enforced_https_turns_plain_requests_away_but_for_programs_on_this_machine() {
    let policy = ListenerPolicy {
        enforce_https: true,
        ..ListenerPolicy::default()
    };
    let world = behind(policy).await;
    let operators = ("GET", "/api/atp/admin/audit");
    for (method, path) in CLIENTS.into_iter().chain([operators]) {
        let refused = world.send(method, path, &[FORWARDED, BEARER], "{}").await;
        assert_eq!(refused.status, 403, "{path}");
        assert_eq!(refused.json()["error"], "https_required", "{path}");
        let local = world.send(method, path, &[LOCAL, BEARER], "{}").await;
        assert_ne!(local.status, 403, "{path}");
    }
    let health = world.send("GET", "/api/atp/health", &[FORWARDED], "").await;
    assert_eq!(health.status, 200);
    let trusting = behind(ListenerPolicy {
        trust_proxy: true,
        ..policy
    })
    .await;
    let encrypted = [FORWARDED, ("X-Forwarded-Proto", "https")];
    let keys = trusting.send("GET", "/api/atp/keys", &encrypted, "").await;
    assert_eq!(keys.status, 200);
}

static NULL: NullRail = NullRail;

/// Does nothing, and panics in a callback.
#[derive(Debug)]
struct Broken;

impl Rail for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        NULL.prepare(charge)
    }

    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        payment: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        NULL.confirm(charge, payment)
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        payment: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        NULL.capture(charge, payment)
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        payment: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        NULL.look_up(charge, payment)
    }

    fn cancel<'a>(
        &'a self,
        charge: &'a Charge,
        payment: Option<&'a str>,
    ) -> RailFuture<'a, Fenced> {
        NULL.cancel(charge, payment)
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        payment: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        NULL.refund(charge, payment)
    }

    fn parse_callback(&self, _: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        panic!("planned")
    }
}

#[tokio::test]
async fn a_panic_is_answered_in_the_protocols_own_shape() {
    let setup = Setup {
        rail: Arc::new(Broken),
        ..Setup::default()
    };
    let world = World::with(setup).await;
    let answer = world
        .post("/api/atp/rails/broken/callback", &[], "{}")
        .await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.json()["ok"], false);
    assert_eq!(answer.json()["error"], "internal_error");
    assert!(!answer.text.contains("planned"));
}
