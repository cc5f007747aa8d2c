//! Clients that guess credentials are throttled, and guessable secrets are refused at the start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use consign_testkit::process::{Http, Server};

use super::place::{Place, get, refusal, start};

const PASSWORD: &str = "a-chosen-password";

/// A client of the proxy in front of the server.
fn from(server: &Server, address: &str) -> Http {
    server.http().header("x-forwarded-for", address)
}

fn guess(server: &Server, address: &str, path: &str, credential: (&str, &str)) -> u16 {
    let mut http = from(server, address).header(credential.0, credential.1);
    get(&mut http, path).status
}

#[test]
fn s14_wrong_credentials_are_throttled_per_address_on_every_face() {
    let place = Place::new();
    let server = start(
        &place
            .options()
            .env("BUS_TRUST_PROXY", "true")
            .env("ATP_SITE", "https://shop.example"),
    );
    let admin = server.secret("admin_secret").expect("it was made");
    for (number, (path, header, value)) in [
        ("/admin/keys", "x-admin-token", "wrong-token-0123456789"),
        ("/admin/keys", "authorization", "Basic YWRtaW46d3Jvbmc="),
        ("/metrics", "authorization", "Bearer wrong"),
        ("/intents", "x-api-key", "wrong-key-0123456789"),
        ("/api/atp/admin/audit", "authorization", "Bearer wrong"),
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("203.0.113.{number}");
        let statuses: Vec<u16> = (0..13)
            .map(|_| guess(&server, &address, path, (header, value)))
            .collect();
        assert_eq!(statuses[..10], [401; 10], "{path} {header}");
        assert_eq!(statuses[10..], [429; 3], "{path} {header}");
        // Another address is unaffected, and a strong secret is accepted from the same address.
        let right = ("x-admin-token", admin.as_str());
        assert_eq!(guess(&server, "198.51.100.7", "/admin/keys", right), 200);
        assert_eq!(guess(&server, &address, "/admin/keys", right), 200);
        // A request without credentials does not count as a guess.
        assert_eq!(get(&mut from(&server, &address), "/health").status, 200);
    }
    let log = server.stderr();
    let lines = log
        .lines()
        .filter(|line| line.contains("wrong credentials"));
    assert_eq!(lines.count(), 1, "{log}");
    assert!(log.contains(r#""failures":11"#), "{log}");
}

#[test]
fn s14_a_throttled_address_does_not_learn_that_it_guessed_right() {
    let place = Place::new();
    let server = start(
        &place
            .options()
            .env("BUS_TRUST_PROXY", "true")
            .env("BUS_ADMIN_SECRET", PASSWORD),
    );
    let right = ("x-admin-token", PASSWORD);
    let wrong = ("x-admin-token", "a-wrong-password-");
    assert_eq!(guess(&server, "203.0.113.1", "/admin/keys", right), 200);
    for _ in 0..10 {
        // All addresses of one IPv6 network count together.
        guess(&server, "2001:db8::1", "/admin/keys", wrong);
    }
    assert_eq!(guess(&server, "2001:db8::2", "/admin/keys", right), 429);
    assert_eq!(guess(&server, "2001:db8:0:1::2", "/admin/keys", right), 200);
    let body = {
        let mut http = from(&server, "2001:db8::3").header(wrong.0, wrong.1);
        get(&mut http, "/admin/keys")
    };
    assert_eq!(body.code(), "rate_limited", "{}", body.text());
    assert_eq!(body.header("retry-after"), None);
}

#[test]
fn s14_short_chosen_secrets_are_refused_at_the_start() {
    let place = Place::new();
    for name in [
        "BUS_SECRET",
        "BUS_ADMIN_SECRET",
        "DASHBOARD_PASSWORD",
        "BUS_METRICS_TOKEN",
    ] {
        let (code, said) = refusal(&place.options().env(name, "fifteen-chars-x"));
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains(name) && said.contains("16 characters"),
            "{said}"
        );
        assert!(!said.contains("fifteen"), "{said}");
    }
    drop(start(&place.options()));
    let file = place.data().join("keys/dashboard_password");
    fs::write(&file, "short\n").expect("it is ours");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    let (code, said) = refusal(&place.options());
    assert_ne!(code, 0);
    assert!(
        said.contains("dashboard_password") && said.contains("16 characters"),
        "{said}"
    );
    assert!(said.contains("delete the file"), "{said}");
}
