//! The options of the RFC, set by environment variables.

use super::{Place, get, main_client, printed, publish, start};

#[test]
fn ip_172_maintenance_mode_lets_only_operators_in() {
    let place = Place::new();
    let server = start(&place.options().env("BUS_MAINTENANCE_MODE", "true"));
    let refused = publish(&mut main_client(&server), "later");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "maintenance")
    );
    let mut operator = server.admin_client().unwrap();
    assert_eq!(get(&mut operator, "/admin/keys").status, 200);
    assert_eq!(get(&mut server.http(), "/health").status, 200);
}

#[test]
fn both_switches_hold_for_agent_transactions_too() {
    let place = Place::new();
    let options = place.options().env("ATP_SITE", "https://shop.example");
    let server = start(&options.clone().env("BUS_MAINTENANCE_MODE", "true"));
    let refused = get(&mut server.http(), "/api/atp/keys");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("maintenance"));
    assert_eq!(get(&mut server.http(), "/api/atp/health").status, 200);
    drop(server);
    let server = start(&options.env("BUS_ENFORCE_HTTPS", "true"));
    assert_eq!(get(&mut server.http(), "/api/atp/keys").status, 200);
    let mut elsewhere = server.http().header("X-Forwarded-For", "203.0.113.9");
    let refused = get(&mut elsewhere, "/api/atp/keys");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("https_required"));
}

#[test]
fn ip_171_ip_175_enforced_https_refuses_plain_requests_from_elsewhere() {
    let place = Place::new();
    let server = start(&place.options().env("BUS_ENFORCE_HTTPS", "true"));
    // Programs on this machine are exempt; a forwarded request is not from this machine.
    assert_eq!(publish(&mut main_client(&server), "local").status, 201);
    let mut elsewhere = main_client(&server).header("X-Forwarded-For", "203.0.113.9");
    let refused = publish(&mut elsewhere, "far");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "https_required")
    );
}

#[test]
fn ip_170_forwarding_headers_count_only_behind_a_trusted_proxy() {
    let place = Place::new();
    let enforced = place.options().env("BUS_ENFORCE_HTTPS", "true");
    let claims_https = |server: &consign_testkit::process::Server, scheme: &str| {
        let mut http = main_client(server)
            .header("X-Forwarded-For", "203.0.113.9")
            .header("X-Forwarded-Proto", scheme);
        publish(&mut http, "far").status
    };
    let server = start(&enforced);
    assert_eq!(claims_https(&server, "https"), 403);
    drop(server);
    let server = start(&enforced.env("BUS_TRUST_PROXY", "true"));
    assert_eq!(claims_https(&server, "https"), 201);
    assert_eq!(claims_https(&server, "http"), 403);
}

#[test]
fn ip_052_required_signatures_refuse_unsigned_requests() {
    let place = Place::new();
    let server = start(&place.options().env("BUS_REQUIRE_SIGNATURES", "true"));
    let refused = publish(&mut main_client(&server), "unsigned");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "invalid_signature")
    );
    let signed = place.consign(&["intent", "publish", "signed", "{}", "--json"]);
    assert_eq!(printed(&signed)["status"], "published");
}

#[test]
fn ip_005_metrics_ask_for_their_token() {
    let place = Place::new();
    let server = start(
        &place
            .options()
            .env("BUS_METRICS_TOKEN", "scraper-0123456789"),
    );
    assert_eq!(get(&mut server.http(), "/metrics").status, 401);
    let mut scraper = server
        .http()
        .header("Authorization", "Bearer scraper-0123456789");
    let metrics = get(&mut scraper, "/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().contains("intent_bus_dead_letters_total 0"));
}
