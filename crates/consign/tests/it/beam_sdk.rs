//! Beam from the view of its published SDK: a Node process against a server process.

use std::path::{Path, PathBuf};
use std::process::Command;

use consign_testkit::process;

use super::{PATIENCE, Place, start};

/// Installed by `cargo xtask test --only tools`.
fn sdk() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("xtask");
    let sdk = tools.join("node/node_modules/beam-protocol-sdk/dist/index.js");
    assert!(
        sdk.exists(),
        "the SDK is missing; install it with: cargo xtask test --only tools"
    );
    sdk
}

#[test]
fn be_080_be_112_two_agents_talk_with_the_published_sdk() {
    let place = Place::new();
    let server = start(&place.options());
    let mut node = Command::new("node");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/beam_client/two_agents.mjs"
    );
    node.arg(script).arg(sdk()).arg(server.base_url());
    let output = process::run(node, PATIENCE * 3).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{}", server.stderr());
    assert_eq!(output.stdout, b"done\n");
}
