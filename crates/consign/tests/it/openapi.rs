//! `consign openapi`: the description of the interface without a server.

use serde_json::Value;

use super::{Place, code, get, printed, start, text};

#[test]
fn the_description_without_a_server_is_that_of_a_server() {
    let place = Place::new();
    let server = start(&place.options());
    let key = server.secret("bus_secret").unwrap();
    let mut http = server.http().header("x-api-key", &key);
    let served: Value = serde_json::from_str(&get(&mut http, "/openapi.json").text()).unwrap();
    assert_eq!(printed(&place.consign(&["openapi"])), served);
}

#[test]
fn the_description_is_printed_without_a_server() {
    let place = Place::new();
    let told = printed(&place.consign(&["openapi"]));
    assert_eq!(told["openapi"], "3.1.0");
    assert!(told["paths"]["/api/atp/execute"].is_null());
    let site = [("ATP_SITE", "https://shop.example")];
    let told = printed(&place.consign_with(&["openapi"], &site));
    assert!(told["paths"]["/api/atp/execute"].is_object());
    for path in ["/claim", "/intents/send", "/v1/beam/send", "/v1/messages"] {
        assert!(told["paths"][path].is_object(), "{path}");
    }
    let page = place.consign(&["openapi", "--html"]);
    assert_eq!(code(&page), 0);
    assert!(text(&page.stdout).starts_with("<!doctype html>"));
}

#[test]
fn the_interface_of_a_mesh_daemon_has_a_description_of_its_own() {
    let place = Place::new();
    let told = printed(&place.consign(&["openapi", "--daemon"]));
    assert_eq!(told["openapi"], "3.1.0");
    for path in ["/v1/send", "/v1/intents", "/v1/outbox/requeue"] {
        assert!(told["paths"][path]["post"].is_object(), "{path}");
    }
    assert!(told["paths"]["/intent"].is_null(), "it is no server");
    assert_eq!(code(&place.consign(&["openapi", "--daemon", "--html"])), 2);
}
