//! API tokens, and secrets that can be named.

use super::*;

const SCOPES: &str = r#"{"scopes": ["plugin:rw", "jobs:ro"], "metadata": {"description": "d"}}"#;

fn with_scope_file(scopes: &str, hash: &str) -> World {
    let world = World::new("include: [tokens.yaml]\napi: {enabled: true}").with("KEY", "0042");
    world.put("scopes/a.json", scopes);
    let tokens = format!(
        "tokens:\n  - name: a\n    key: ${{KEY}}\n    scopes_file: scopes/a.json\n    scopes_hash: {hash}\n    created_at: 2026-02-25T00:00:00Z"
    );
    world.put("tokens.yaml", &tokens);
    world
}

#[test]
fn a_token_with_a_matching_scope_file_is_known_du_023() {
    let hash = blake3::hash(SCOPES.as_bytes()).to_hex();
    let config = with_scope_file(SCOPES, &format!("blake3:{hash}")).config();
    // The value is the text of the variable, not the number it looks like.
    let holder = config.registry.holder("0042").unwrap();
    assert_eq!(holder.name, "a");
    assert!(holder.may("plugin:ro") && holder.may("jobs:logs:ro") && !holder.may("jobs:rw"));
    assert!(config.registry.holder("34").is_none() && config.registry.holder("42").is_none());
    let bare = r#"["events:ro"]"#;
    let hash = blake3::hash(bare.as_bytes()).to_hex();
    let config = with_scope_file(bare, &hash).config();
    assert!(config.registry.holder("0042").unwrap().may("events:ro"));
}

#[test]
fn a_scope_file_that_does_not_match_is_refused_du_023() {
    let world = with_scope_file(SCOPES, &format!("blake3:{}", "0".repeat(64)));
    let problems = world.problems();
    assert!(
        problems.contains("Error tokens.yaml:2: the scope file "),
        "{problems}"
    );
    assert!(
        problems.contains("does not match the token's `scopes_hash`"),
        "{problems}"
    );
    // The holder of the token is known but may do nothing.
    let none = BTreeMap::new();
    let sources = sources::gather(&world.path("config.yaml"), &world.environment, &none);
    let report = RefCell::default();
    let config = read::read(
        &world.path("config.yaml"),
        sources,
        &world.environment,
        &none,
        &report,
    );
    assert!(!config.registry.holder("0042").unwrap().may("plugin:ro"));
    world.put("scopes/a.json", "no json");
    assert!(world.problems().contains("does not match"));
    fs::remove_file(world.path("scopes/a.json")).unwrap();
    assert!(world.problems().contains("cannot read the scope file"));
}

#[test]
fn a_scope_file_needs_scopes_and_wants_a_hash() {
    let hash = blake3::hash(b"{}").to_hex();
    assert!(
        with_scope_file("{}", &hash)
            .problems()
            .contains("contains no scopes")
    );
    let world = with_scope_file(SCOPES, "");
    let hash = blake3::hash(SCOPES.as_bytes()).to_hex();
    let advice = format!("add `scopes_hash: blake3:{hash}`");
    assert!(world.problems().contains(&advice), "{}", world.problems());
    world.config();
}

#[test]
fn api_tokens_are_known_by_value_or_by_name_du_024() {
    let text = "api:\n  enabled: true\n  auth:\n    tokens:\n      - {token: \"${T}\", scopes: ['*']}\n      - {secret_ref: named, scopes: ['jobs:ro']}\n      - {token: third}\ntokens: [{name: named, key: second}]";
    let config = World::new(text).with("T", "first").config();
    assert!(config.registry.holder("first").unwrap().may("system:rw"));
    assert!(config.registry.holder("second").unwrap().may("jobs:ro"));
    assert!(!config.registry.holder("third").unwrap().may("jobs:ro"));
    assert!(config.registry.holder("").is_none());
    let api = |token: &str| format!("api: {{enabled: true, auth: {{tokens: [{token}]}}}}");
    refused(
        &api("{scopes: ['*']}"),
        "needs either `token` or `secret_ref`",
    );
    refused(
        &api("{token: a, secret_ref: b}"),
        "needs either `token` or `secret_ref`",
    );
    refused(&api("{token: ''}"), "needs either `token` or `secret_ref`");
    refused(&api("{secret_ref: b}"), "names the secret `b`");
    refused(
        "api: {enabled: true}\ntokens: [{name: plain, key: v}]",
        "the API is enabled and has no token",
    );
    warned(
        &api("{token: a, scopes: ['plugins:rw']}"),
        "the scope `plugins:rw` allows nothing; write `plugin:ro` or `plugin:rw`",
    );
}

#[test]
fn secrets_are_named_once_and_exist() {
    refused(
        "tokens: [{name: a, key: x}, {name: a, key: y}]",
        "the token `a` is defined twice",
    );
    refused("tokens: [{name: a}]", "`tokens[0].key` is missing");
    let plugin =
        |config: &str| format!("tokens: [{{name: a, key: x}}]\nplugins: {{p: {{{config}}}}}");
    refused(
        &plugin("config: {api_ref: b}"),
        "`plugins.p.config.api_ref` names the secret `b`",
    );
    refused(
        &plugin("config: {api_ref: [a]}"),
        "must be the name of a secret, not a list",
    );
    World::new(&plugin("config: {api_ref: a}")).config();
    World::new(&plugin("enabled: false, config: {api_ref: b}")).config();
}

#[test]
fn a_scope_file_behind_a_link_is_refused() {
    let hash = blake3::hash(SCOPES.as_bytes()).to_hex();
    let world = with_scope_file(SCOPES, &hash);
    fs::rename(world.path("scopes/a.json"), world.path("b.json")).unwrap();
    std::os::unix::fs::symlink(world.path("b.json"), world.path("scopes/a.json")).unwrap();
    let problems = world.problems();
    assert_eq!(
        problems.lines().next(),
        Some(
            "Error a.json: is a symbolic link; name the file itself, or set `service.allow_symlinks`"
        ),
    );
}
