//! Configurations are shown without their secrets, whatever their names and positions.

use consign_testkit::process::Http;

use crate::automation_world::{OK, World, until};
use crate::place::{code, text};

/// None of these values may be shown.
const CONFIG: &str = r#"
api: {enabled: true, listen: "127.0.0.1:0", auth: {tokens: [{token: reader-token-0123456789, scopes: ["system:ro"]}]}}
pipelines:
  - name: guarded
    on: never
    if: {path: payload.shown, op: eq, value: "${FROM_VARIABLE}"}
    steps: [{uses: echo, with: {smtpPass: gone-a1}}]
plugins:
  echo:
    config:
      authorization: gone-b1
      dsn: gone-b2
      passphrase: gone-b3
      passwd: gone-b4
      credentials: {user: gone-b5, list: [gone-b6, {deep: gone-b7}]}
      pat: gone-b8
      smtp_pass: gone-b9
      pin: 900133
      SESSION-COOKIE: gone-c1
      basicAuth: gone-c2
      url: "https://ada:gone-c3@example.com/path"
      dsns: ["postgres://ada:gone-c4@db/x", "ada:gone-c5@tcp(db)/x", "host=db password=gone-c6"]
      headers: [{name: Authorization, value: gone-c7}, "X-Auth-Token: gone-c8", "Bearer gone-c9-0123456789"]
      args: ["--password", "gone-d1", "--secret=gone-d2"]
      note: |
        -----BEGIN PRIVATE KEY-----
        gone-d3
        -----END PRIVATE KEY-----
      nested: {more: [{and: {privateNote: gone-d4, "proxy-authorization": gone-d5}}]}
      plain: seen-1
      pattern: seen-2
      author: seen-3
    schedules: [{every: 24h, payload: {pass: gone-d6, level: seen-4}}]
"#;
const SEEN: [&str; 4] = ["seen-1", "seen-2", "seen-3", "seen-4"];

fn assert_masked(what: &str, shown: &str) {
    for gone in ["gone-", "900133", "reader-token", "of-the-variable"] {
        assert!(!shown.contains(gone), "{what} shows {gone}: {shown}");
    }
    for seen in SEEN {
        assert!(shown.contains(seen), "{what} hides {seen}: {shown}");
    }
}

#[test]
fn s18_literals_are_masked_wherever_a_configuration_is_shown() {
    let world = World::new();
    world.plugin("echo", OK);
    world.config(CONFIG);
    let variables = [("FROM_VARIABLE", "of-the-variable")];
    let mut service = world.start_with(&variables);
    for args in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["config", "show", "--effective"],
        &["config", "show", "--effective", "--json"],
        &["config", "get", "plugins"],
        &["config", "get", "plugin:echo"],
        &["config", "get", "plugins.echo", "--effective", "--json"],
    ] {
        let output = world.ductile_with(args, &variables);
        assert_eq!(code(&output), 0, "{output:?}");
        assert_masked(&args.join(" "), &text(&output.stdout));
    }
    let address = || {
        let log = service.log().into_iter();
        let mut api = log.filter_map(|line| Some(line["api"].as_str()?.to_owned()));
        api.next_back()
    };
    until("it says where its API is", || address().is_some());
    let address = address().expect("it was said just now");
    let mut http = Http::new(&address).header("Authorization", "Bearer reader-token-0123456789");
    let view = http.get("/config/view").expect("it answers");
    assert_eq!(view.status, 200, "{}", view.text());
    assert_masked("GET /config/view", &view.text());
    service.signal("TERM");
    assert!(service.wait().success());
}
