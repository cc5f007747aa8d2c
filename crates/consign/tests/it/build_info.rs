//! Commands about the program itself: version, completions, manual pages, and the description of all commands.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Place, code, printed, text, word};

#[test]
fn the_version_names_protocols_schemas_and_what_built_it() {
    let place = Place::new();
    let version = printed(&place.consign(&["version", "--json"]));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["protocols"]["intent"], "2.1");
    assert_eq!(version["protocols"]["beam"], "beam/1");
    assert!(version["schemas"]["sqlite"].as_u64() > Some(1), "{version}");
    assert!(
        version["schemas"]["postgres"].as_u64() > Some(1),
        "{version}"
    );
    assert!(word(&version["rustc"]).starts_with("rustc "), "{version}");
    assert!(word(&version["target"]).contains('-'), "{version}");
    let shown = text(&place.consign(&["version"]).stdout);
    assert!(shown.starts_with("consign "), "{shown}");
}

#[test]
fn completions_are_scripts_that_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.consign(&["completion", shell]);
        assert_eq!(code(&script), 0, "{shell}");
        let script = text(&script.stdout);
        for known in ["idempotency-key", "doctor", "drain"] {
            assert!(script.contains(known), "{known} in that for {shell}");
        }
    }
    let script = place.consign(&["completion", "bash"]).stdout;
    let mut bash = Command::new("bash")
        .arg("-c")
        .arg("source /dev/stdin && COMP_WORDS=(consign intent cl) COMP_CWORD=2 && _consign consign cl intent && echo \"${COMPREPLY[@]}\"")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is there");
    let mut stdin = bash.stdin.take().expect("a pipe");
    stdin.write_all(&script).expect("bash reads it");
    drop(stdin);
    let completed = bash.wait_with_output().expect("bash ends");
    assert_eq!(text(&completed.stdout).trim(), "claim");
    assert_eq!(code(&place.consign(&["completion", "tcsh"])), 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let dir = place.path("man");
    let written = place.consign(&["man", dir.to_str().expect("a path")]);
    assert_eq!(code(&written), 0, "{}", text(&written.stderr));
    for name in ["consign", "consign-intent-publish", "consign-doctor"] {
        let page = std::fs::read_to_string(dir.join(format!("{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH"), "{name}");
    }
    assert!(!dir.join("consign-bench-empty.1").exists());
    let main = text(&place.consign(&["man"]).stdout);
    assert!(
        main.contains("exit codes") || main.contains("Exit codes"),
        "{main}"
    );
}

#[test]
fn the_description_covers_all_commands_or_one() {
    let place = Place::new();
    let whole = printed(&place.consign(&["schema"]));
    let commands = whole["commands"].as_array().expect("a list");
    assert!(commands.len() > 20, "{}", commands.len());
    let one = printed(&place.consign(&["schema", "intent", "publish"]));
    assert_eq!(one["command"], "intent publish");
    let unknown = place.consign(&["schema", "intent", "publsih"]);
    assert_eq!(code(&unknown), 3);
}

#[test]
fn requests_are_shown_with_verbose_and_notes_left_out_with_quiet() {
    let place = Place::new();
    let _server = place.start();
    let publish = ["intent", "publish", "greet", "{}", "--json"];
    let plain = place.consign(&publish);
    assert_eq!(text(&plain.stderr), "");
    let verbose = place.consign(&[&publish[..], &["-v"]].concat());
    let shown = text(&verbose.stderr);
    assert!(shown.contains("POST http://"), "{shown}");
    assert!(shown.contains("/intent: 201 Created"), "{shown}");
    let nothing = ["intent", "claim", "--goal", "none"];
    let noted = text(&place.consign(&nothing).stderr);
    assert!(!noted.is_empty());
    let quiet = place.consign(&[&nothing[..], &["--quiet"]].concat());
    assert_eq!((code(&quiet), text(&quiet.stderr).as_str()), (3, ""));
    let failed = place.consign(&["-q", "intent", "show", "nothing-like-it"]);
    assert!(
        text(&failed.stderr).starts_with("error: "),
        "errors are told"
    );
}
