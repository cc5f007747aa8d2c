//! Authentication of the admin routes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use consign_web::credentials::SecretDigest;
use http::Method;
use serde_json::json;

use crate::world::{ADMIN, Call, MAIN, METRICS, PASSWORD, World};

fn doors() -> Vec<Call> {
    let id = "0".repeat(32);
    let posts = ["generate_key", "revoke_key", "purge", "cleanup"]
        .map(|name| (Method::POST, format!("/admin/{name}")));
    let gets = ["dashboard", "keys", "dead", "nothing"]
        .map(|name| (Method::GET, format!("/admin/{name}")));
    let ids = [
        (Method::GET, format!("/admin/intents/{id}")),
        (Method::POST, format!("/admin/intents/{id}/cancel")),
        (Method::POST, format!("/admin/intents/{id}/retry")),
        (Method::GET, format!("/admin/dead/{id}")),
        (Method::DELETE, "/admin/dead".to_owned()),
    ];
    posts
        .into_iter()
        .chain(gets)
        .chain(ids)
        .map(|(method, uri)| Call::new(method, &uri))
        .collect()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// These credentials are refused on every admin route, and the response makes a browser ask for a password.
async fn assert_closed(world: &World, headers: &[(&str, &str)]) {
    for call in doors() {
        let call = headers
            .iter()
            .fold(call, |call, (name, value)| call.header(name, value));
        let answer = world.send(call).await;
        answer.assert_refused(401, "unauthorized");
        assert_eq!(
            answer.headers["www-authenticate"],
            "Basic realm=\"Consign\""
        );
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("Authentication required"), "{message}");
    }
}

async fn assert_open(world: &World, headers: &[(&str, &str)]) {
    for call in doors() {
        let call = headers
            .iter()
            .fold(call, |call, (name, value)| call.header(name, value));
        let answer = world.send(call).await;
        assert_ne!(answer.status, 401, "{}", answer.text());
    }
    let call = headers
        .iter()
        .fold(Call::get("/admin/dead"), |call, (name, value)| {
            call.header(name, value)
        });
    world.send(call).await.assert_ok(&json!([]));
}

#[tokio::test]
async fn ip_068_the_admin_secret_opens_every_admin_route() {
    let world = World::new();
    assert_open(&world, &[("x-admin-token", ADMIN)]).await;
    for wrong in [
        &ADMIN[1..],
        &ADMIN.to_uppercase(),
        &format!("{ADMIN} x"),
        PASSWORD,
        METRICS,
        "ké",
        &"x".repeat(100_000),
    ] {
        assert_closed(&world, &[("x-admin-token", wrong)]).await;
    }
    assert_closed(&world, &[]).await;
    assert_closed(&world, &[("authorization", &format!("Bearer {ADMIN}"))]).await;
}

#[tokio::test]
async fn ip_069_the_dashboard_password_opens_every_admin_route() {
    let world = World::new();
    assert_open(&world, &[("authorization", &basic("admin", PASSWORD))]).await;
    for wrong in [
        basic("admin", "wrong"),
        basic("admin", ""),
        basic("admin", ADMIN),
        basic("Admin", PASSWORD),
        basic("root", PASSWORD),
        basic("", PASSWORD),
        basic("admin:", PASSWORD),
        format!("Basic {PASSWORD}"),
        "Basic".to_owned(),
        "Basic !!!".to_owned(),
    ] {
        assert_closed(&world, &[("authorization", &wrong)]).await;
    }
}

#[tokio::test]
async fn ip_070_the_token_goes_before_the_password() {
    let world = World::new();
    let right = basic("admin", PASSWORD);
    assert_open(
        &world,
        &[
            ("x-admin-token", ADMIN),
            ("authorization", &basic("admin", "wrong")),
        ],
    )
    .await;
    assert_closed(
        &world,
        &[("x-admin-token", "wrong"), ("authorization", &right)],
    )
    .await;
    assert_closed(&world, &[("x-admin-token", ""), ("authorization", &right)]).await;
    let unset = World::with(|options| options.operators.admin_secret = None);
    assert_closed(
        &unset,
        &[("x-admin-token", ADMIN), ("authorization", &right)],
    )
    .await;
    assert_open(&unset, &[("authorization", &right)]).await;
}

#[tokio::test]
async fn ip_071_ip_072_no_api_key_opens_an_admin_route() {
    let world = World::new();
    let tester = world.tester("t").await;
    for key in [MAIN, &tester, ADMIN, PASSWORD] {
        assert_closed(&world, &[("x-api-key", key)]).await;
    }
    for key in [MAIN, &tester] {
        assert_closed(&world, &[("x-admin-token", key)]).await;
        assert_closed(&world, &[("authorization", &basic("admin", key))]).await;
        assert_closed(&world, &[("x-admin-token", key), ("x-api-key", key)]).await;
    }
    let unset = World::with(|options| {
        (
            options.operators.admin_secret,
            options.operators.dashboard_password,
        ) = (None, None);
    });
    assert_closed(&unset, &[("x-admin-token", MAIN), ("x-api-key", MAIN)]).await;
}

#[tokio::test]
async fn ip_073_secrets_that_are_not_set_match_nothing_not_even_emptiness() {
    let empty = || Some(SecretDigest::new(String::new()));
    let worlds = [
        World::with(|options| {
            (
                options.operators.admin_secret,
                options.operators.dashboard_password,
                options.operators.metrics_token,
            ) = (None, None, None);
        }),
        World::with(|options| {
            (
                options.operators.admin_secret,
                options.operators.dashboard_password,
                options.operators.metrics_token,
            ) = (empty(), empty(), empty());
        }),
    ];
    for world in worlds {
        assert_closed(&world, &[]).await;
        assert_closed(&world, &[("x-admin-token", "")]).await;
        assert_closed(&world, &[("authorization", &basic("admin", ""))]).await;
        assert_closed(&world, &[("authorization", &basic("", ""))]).await;
        assert_closed(
            &world,
            &[
                ("x-admin-token", ""),
                ("authorization", &basic("admin", "")),
            ],
        )
        .await;
        for (name, value) in [
            ("authorization", "Bearer "),
            ("authorization", "Bearer"),
            ("x-admin-token", ""),
        ] {
            let answer = world.send(Call::get("/metrics").header(name, value)).await;
            answer.assert_refused(401, "unauthorized");
        }
    }
}

#[tokio::test]
async fn ip_072_admin_credentials_do_not_stand_in_for_an_api_key() {
    let world = World::new();
    let publish = Call::post("/intent")
        .admin()
        .json(&json!({"goal": "g", "payload": 1}));
    world
        .send(publish.clone())
        .await
        .assert_refused(401, "unauthorized");
    let both = publish.header("authorization", &basic("admin", PASSWORD));
    world.send(both).await.assert_refused(401, "unauthorized");
}

/// All admin routes that change state.
fn levers() -> impl Iterator<Item = Call> {
    doors()
        .into_iter()
        .filter(|call| call.method != Method::GET)
}

/// Headers that browsers send for a page of another origin, where the origin of the server is `http://127.0.0.1:7070`.
const FOREIGN: [&[(&str, &str)]; 9] = [
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("sec-fetch-site", "")],
    &[("origin", "https://evil.example")],
    &[("origin", "http://127.0.0.1:3000")],
    &[("origin", "http://127.0.0.1")],
    &[("origin", "null")],
    &[("sec-fetch-site", "same-origin"), ("origin", "null")],
    &[
        ("sec-fetch-site", "cross-site"),
        ("origin", "http://127.0.0.1:7070"),
    ],
];

fn with(call: Call, headers: &[(&str, &str)]) -> Call {
    headers
        .iter()
        .fold(call, |call, (name, value)| call.header(name, value))
}

#[tokio::test]
async fn a_foreign_page_cannot_use_the_password_that_a_browser_remembers() {
    let world = World::new();
    let password = basic("admin", PASSWORD);
    for page in FOREIGN {
        for call in levers() {
            let call = with(call, page).header("authorization", &password);
            world.send(call).await.assert_refused(403, "forbidden");
        }
        let make_key = with(Call::post("/admin/generate_key"), page)
            .header("authorization", &password)
            .json(&json!({"owner": "mallory"}));
        world.send(make_key).await.assert_refused(403, "forbidden");
    }
    let keys = world.send(Call::get("/admin/keys").admin()).await;
    assert!(!keys.text().contains("mallory"), "{}", keys.text());
}

#[tokio::test]
async fn a_foreign_page_without_a_password_is_asked_for_one() {
    let world = World::new();
    assert_closed(&world, FOREIGN[0]).await;
    let wrong = ("authorization", &*basic("admin", "wrong"));
    assert_closed(&world, &[FOREIGN[0][0], wrong]).await;
}

#[tokio::test]
async fn our_own_page_and_the_address_bar_may_use_the_password_everywhere() {
    let world = World::new();
    let password = basic("admin", PASSWORD);
    let pages: [&[(&str, &str)]; 4] = [
        &[],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://127.0.0.1:7070")],
        &[
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://127.0.0.1:7070"),
        ],
    ];
    for page in pages {
        for call in doors() {
            let call = with(call, page).header("authorization", &password);
            let answer = world.send(call).await;
            assert!(
                answer.status != 401 && answer.status != 403,
                "{page:?}: {}",
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn a_link_on_a_foreign_page_opens_the_dashboard_and_the_token_changes_things_from_anywhere() {
    let world = World::new();
    let password = basic("admin", PASSWORD);
    for page in FOREIGN {
        for name in ["dashboard", "keys", "dead"] {
            let call =
                with(Call::get(&format!("/admin/{name}")), page).header("authorization", &password);
            assert_eq!(world.send(call).await.status, 200);
        }
        for call in levers() {
            // A browser that has stored the password sends it as well.
            let call = with(call, page).admin().header("authorization", &password);
            let answer = world.send(call).await;
            assert_ne!(answer.status, 403, "{}", answer.text());
        }
    }
}
