//! The compatibility profile from the view of its client: a Node process against a server process.

use std::path::{Path, PathBuf};
use std::process::Command;

use consign_testkit::process;

use super::{PATIENCE, Place, refusal, start};

const SECRET: &str = "the secret of the tests' tokens, long enough";

fn own(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/atp_client");
    Path::new(folder).join(file)
}

/// The published client if it is installed, otherwise one that sends the same requests: the published client is in no registry
/// that every machine can reach.
fn client() -> PathBuf {
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("xtask");
    let published = shelf.join("node/node_modules/web-agent-bridge/sdk/atp.js");
    if published.exists() {
        return published;
    }
    own("client.js")
}

#[test]
fn at_104_the_older_client_completes_its_life_cycle() {
    let place = Place::new();
    let options = place
        .options()
        .env("ATP_SITE", "https://shop.example")
        .env("ATP_COMPAT", "true")
        .env("ATP_COMPAT_SECRET", SECRET);
    let server = start(&options);
    let mut node = Command::new("node");
    node.arg(own("life_cycle.js"))
        .arg(client())
        .arg(server.base_url())
        .arg(SECRET);
    let output = process::run(node, PATIENCE * 3).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(output.stdout, b"done\n");
    assert!(!server.stderr().contains(SECRET));
}

#[test]
fn at_104_the_profile_is_not_served_without_a_good_secret() {
    let place = Place::new();
    let options = place
        .options()
        .env("ATP_SITE", "https://shop.example")
        .env("ATP_COMPAT", "true")
        .env("ATP_COMPAT_SECRET", "too short");
    let (code, told) = refusal(&options);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("ATP_COMPAT_SECRET"), "{told}");
    assert!(!told.contains("too short"), "{told}");
}
