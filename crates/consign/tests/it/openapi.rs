//! `consign openapi`: the description of the interface without a server.

use super::{Place, code, printed, text};

#[test]
fn the_description_is_printed_without_a_server() {
    let place = Place::new();
    let told = printed(&place.consign(&["openapi"]));
    assert_eq!(told["openapi"], "3.1.0");
    assert!(told["paths"]["/api/atp/execute"].is_null());
    let site = [("ATP_SITE", "https://shop.example")];
    let told = printed(&place.consign_with(&["openapi"], &site));
    assert!(told["paths"]["/api/atp/execute"].is_object());
    assert!(told["paths"]["/claim"].is_object());
    let page = place.consign(&["openapi", "--html"]);
    assert_eq!(code(&page), 0);
    assert!(text(&page.stdout).starts_with("<!doctype html>"));
}
