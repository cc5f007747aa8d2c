//! The login of operators, and what their sessions open.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use consign_beam::api_key;
use consign_beam::settings::BeamSettings;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::Kind;
use serde_json::{Value, json};

use crate::world::World;

pub(crate) const ADMIN: &str = "ada@example.com";
pub(crate) const VIEWER: &str = "eve@example.com";

pub(crate) fn with_roles(settings: &mut BeamSettings) {
    settings.roles.admins = vec!["Ada@Example.com".to_owned()];
    settings.roles.viewers = vec![VIEWER.to_owned()];
}

/// Logs an operator in and returns the value of `Authorization`.
pub(crate) async fn log_in(world: &World, email: &str) -> String {
    let offered = offer(world, email).await;
    let begun = world
        .post("/admin/auth/verify", &json!({"token": offered["token"]}))
        .await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    format!("Bearer {}", begun.json()["token"].as_str().unwrap())
}

async fn offer(world: &World, email: &str) -> Value {
    let offered = world
        .post("/admin/auth/magic-link", &json!({"email": email}))
        .await;
    assert_eq!(offered.status, 200, "{}", offered.text);
    offered.json()
}

async fn session(world: &World, headers: &[(&str, &str)]) -> u16 {
    let path = "/admin/auth/session";
    world.request("GET", path, headers, None).await.status
}

#[tokio::test]
async fn be_150_a_login_token_begins_one_session_that_a_logout_ends() {
    let world = World::with(with_roles).await;
    let offered = offer(&world, " ADA@example.com ").await;
    assert_eq!(offered["ok"], true);
    assert_eq!(offered["email"], ADMIN);
    assert_eq!(offered["role"], "admin");
    assert_eq!(offered["dev"], true);
    let token = offered["token"].as_str().unwrap();
    assert!(offered.get("url").is_none(), "no page takes the token");
    let body = json!({"token": token});
    let begun = world.post("/admin/auth/verify", &body).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    assert_eq!(begun.header("cache-control"), Some("no-store"));
    let again = world.post("/admin/auth/verify", &body).await;
    assert_eq!(again.error(), (401, "INVALID_TOKEN".to_owned()));

    let session_token = begun.json()["token"].as_str().unwrap().to_owned();
    let claims = session_token.split('.').nth(1).unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let members: Vec<_> = claims.as_object().unwrap().keys().cloned().collect();
    assert_eq!(members.len(), 5, "{claims}");
    assert_eq!(claims["typ"], "beam-admin");
    assert_eq!(claims["email"], ADMIN);
    assert_eq!(claims["role"], "admin");
    assert!(claims["sid"].is_string());
    let ends_in_ms = claims["exp"].as_i64().unwrap() - world.engine.wall().0 / 1_000;
    let week_ms = 168 * 60 * 60 * 1_000;
    assert!((week_ms - 60_000..=week_ms).contains(&ends_in_ms));

    let cookie = begun.header("set-cookie").unwrap();
    let expected = format!(
        "beam_admin_session={session_token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800"
    );
    assert_eq!(cookie, expected);
    let cookie = format!("theme=dark; beam_admin_session={session_token}");
    let bearer = format!("Bearer {session_token}");
    assert_eq!(session(&world, &[("cookie", &cookie)]).await, 200);
    assert_eq!(session(&world, &[("authorization", &bearer)]).await, 200);
    assert_eq!(session(&world, &[]).await, 401);
    let twice = format!("{cookie}; beam_admin_session=x");
    assert_eq!(session(&world, &[("cookie", &twice)]).await, 401);

    let headers = [("authorization", bearer.as_str())];
    let ended = world
        .request("POST", "/admin/auth/logout", &headers, None)
        .await;
    assert_eq!(ended.status, 200, "{}", ended.text);
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(session(&world, &[("cookie", &cookie)]).await, 401);
    assert_eq!(session(&world, &[("authorization", &bearer)]).await, 401);
}

#[tokio::test]
async fn be_150_only_this_machine_sees_the_login_token() {
    for open in [false, true] {
        let world = World::with(|settings| {
            with_roles(settings);
            settings.open = open;
        })
        .await;
        let body = json!({"email": ADMIN}).to_string();
        let path = "/admin/auth/magic-link";
        let forwarded = world
            .request_elsewhere(
                "POST",
                path,
                &[("origin", "http://localhost")],
                Some(body.clone()),
            )
            .await;
        let of_page = world
            .request(
                "POST",
                path,
                &[("origin", "http://localhost.evil.example")],
                Some(body),
            )
            .await;
        for answer in [forwarded, of_page] {
            assert_eq!(answer.status, 200, "{}", answer.text);
            let body = answer.json();
            assert_eq!(body["dev"], false);
            assert!(body.get("token").is_none(), "{body}");
            assert!(body.get("url").is_none(), "{body}");
        }
        let stored = world.engine.records(Kind::BeamLogin, "", "", 10);
        assert_eq!(stored.await.unwrap().len(), 0);
    }
}

#[tokio::test]
async fn be_150_an_address_without_a_role_gets_no_login() {
    let world = World::with(with_roles).await;
    let path = "/admin/auth/magic-link";
    for (body, expected) in [
        (
            json!({"email": "mallory@example.com"}),
            (403, "UNAUTHORIZED"),
        ),
        (json!({"email": "nobody"}), (400, "INVALID_EMAIL")),
        (json!({"email": 7}), (400, "INVALID_EMAIL")),
        (json!({}), (400, "INVALID_EMAIL")),
        (json!([]), (400, "INVALID_BODY")),
    ] {
        let refused = world.post(path, &body).await.error();
        assert_eq!(refused, (expected.0, expected.1.to_owned()), "{body}");
    }
    for body in [
        json!({}),
        json!({"token": 7}),
        json!({"token": "0".repeat(64)}),
    ] {
        let refused = world.post("/admin/auth/verify", &body).await.error();
        assert_eq!(refused, (401, "INVALID_TOKEN".to_owned()), "{body}");
    }
}

#[tokio::test]
async fn be_150_without_roles_the_routes_of_operators_are_unavailable() {
    let world = World::new().await;
    let unavailable = (503, "ADMIN_UNAVAILABLE".to_owned());
    let body = json!({"email": ADMIN, "token": "x"});
    for path in ["/admin/auth/magic-link", "/admin/auth/verify"] {
        assert_eq!(world.post(path, &body).await.error(), unavailable, "{path}");
    }
    for path in ["/admin/auth/session", "/observability/overview"] {
        assert_eq!(world.get(path).await.error(), unavailable, "{path}");
    }
}

#[tokio::test]
async fn be_150_concurrent_uses_of_a_login_token_begin_one_session() {
    let world = World::with(with_roles).await;
    let offered = offer(&world, VIEWER).await;
    let body = json!({"token": offered["token"]});
    let uses = (0..8).map(|_| world.post("/admin/auth/verify", &body));
    let answers = futures_util::future::join_all(uses).await;
    let begun = answers.iter().filter(|answer| answer.status == 200);
    assert_eq!(begun.count(), 1);
    let sessions = world.engine.records(Kind::BeamSession, "", "", 10);
    assert_eq!(sessions.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_login_token_is_stored_as_a_digest_for_15_minutes() {
    let world = World::with(with_roles).await;
    let offered = offer(&world, VIEWER).await;
    let token = offered["token"].as_str().unwrap();
    let stored = world.engine.records(Kind::BeamLogin, "", "", 10);
    let stored = stored.await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].key.name, api_key::digest(token));
    assert!(!stored[0].value.contains(token));
    let left_us = stored[0].expires_at.unwrap().0 - world.engine.now().0;
    assert!((14 * 60 * SECOND_US..=15 * 60 * SECOND_US).contains(&left_us));
    // An expired one counts as absent.
    let mut expired = consign_engine::new_put(stored[0].key.clone(), &json!({"email": VIEWER}));
    expired.expires_at = Some(Micros(world.engine.now().0 - 1));
    world.engine.put(expired).await.unwrap();
    let refused = world
        .post("/admin/auth/verify", &json!({"token": token}))
        .await;
    assert_eq!(refused.error(), (401, "INVALID_TOKEN".to_owned()));
    assert_eq!(world.beam.forget_expired_sessions().await.unwrap(), 1);
}

#[tokio::test]
async fn a_role_that_was_taken_away_ends_with_the_next_start() {
    let world = World::with(with_roles).await;
    let (admin, viewer) = (log_in(&world, ADMIN).await, log_in(&world, VIEWER).await);
    let ledger = world.stop().await;
    let world = World::restarted(ledger, "start-2", |settings| {
        settings.roles.viewers = vec![ADMIN.to_owned()];
    })
    .await;
    let headers = [("authorization", admin.as_str())];
    let demoted = world
        .request("GET", "/admin/auth/session", &headers, None)
        .await;
    assert_eq!(demoted.json()["role"], "viewer", "{}", demoted.text);
    assert_eq!(session(&world, &[("authorization", &viewer)]).await, 401);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_cookie() {
    let world = World::with(with_roles).await;
    let bearer = log_in(&world, ADMIN).await;
    let token = bearer.strip_prefix("Bearer ").unwrap();
    let cookie = format!("beam_admin_session={token}");
    let own = format!("http://{}", world.address);
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [("cookie", cookie.as_str()), foreign];
        let left = world
            .request("POST", "/admin/auth/logout", &headers, None)
            .await;
        assert_eq!(left.status, 200, "{}", left.text);
        assert_eq!(left.header("set-cookie"), None);
        assert_eq!(session(&world, &headers).await, 401, "{foreign:?}");
        let headers = [("authorization", bearer.as_str()), foreign];
        assert_eq!(session(&world, &headers).await, 200, "{foreign:?}");
        let offered = offer(&world, VIEWER).await;
        let body = json!({"token": offered["token"]}).to_string();
        let begun = world
            .request("POST", "/admin/auth/verify", &[foreign], Some(body))
            .await;
        assert_eq!(begun.status, 200, "{}", begun.text);
        assert_eq!(begun.header("set-cookie"), None, "{foreign:?}");
    }
    let headers = [("cookie", cookie.as_str()), ("origin", own.as_str())];
    assert_eq!(session(&world, &headers).await, 200);
    world
        .request("POST", "/admin/auth/logout", &headers, None)
        .await;
    assert_eq!(session(&world, &headers).await, 401);
}

#[tokio::test]
async fn a_viewer_sees_all_intents_request_elsewhere() {
    let world = World::with(with_roles).await;
    let (alice, bob) = world.alice_and_bob().await;
    let frame = alice.message(&world, &bob, "nonce-1");
    world.post("/intents/send", &frame).await;
    let bearer = log_in(&world, VIEWER).await;
    let path = "/intents/recent";
    let refused = world.request_elsewhere("GET", path, &[], None).await;
    assert_eq!(refused.error(), (401, "UNAUTHORIZED".to_owned()));
    let headers = [("authorization", bearer.as_str())];
    let recent = world.request_elsewhere("GET", path, &headers, None).await;
    assert_eq!(recent.json()["total"], 1, "{}", recent.text);
    let feed = "/ws?feed=intents";
    let far = ("x-forwarded-for", "203.0.113.7");
    assert_eq!(world.open(feed, &[far]).await.err(), Some(401));
    let opened = world.open(feed, &[far, ("authorization", &bearer)]).await;
    let hello = opened.unwrap().next_json().await.unwrap();
    assert_eq!(hello["type"], "feed_connected");
}

#[tokio::test]
async fn another_machine_may_try_to_log_in_six_times_in_a_minute() {
    let world = World::with(with_roles).await;
    let try_to = async |path: &str, body: Value| {
        let body = Some(body.to_string());
        world.request_elsewhere("POST", path, &[], body).await
    };
    for number in 0..6 {
        // Wrong tokens also count as wrong credentials, so most attempts are for an address.
        let answer = if number == 0 {
            try_to("/admin/auth/verify", json!({"token": "wrong"})).await
        } else {
            try_to("/admin/auth/magic-link", json!({"email": ADMIN})).await
        };
        assert_ne!(answer.status, 429, "{number}");
    }
    for path in ["/admin/auth/magic-link", "/admin/auth/verify"] {
        let answer = try_to(path, json!({"email": ADMIN, "token": "wrong"})).await;
        assert_eq!(answer.error(), (429, "RATE_LIMITED".to_owned()), "{path}");
        assert_eq!(answer.header("retry-after"), Some("60"));
    }
    // Programs on this machine are not limited.
    for _ in 0..8 {
        log_in(&world, ADMIN).await;
    }
}
