//! Independent verification of receipts: other implementations of canonical JSON and Ed25519, as separate processes, with
//! only the documents and the site's key list.

use std::io::Write as _;
use std::process::{Command, Stdio};

use consign_kernel::json::canonical_value;
use consign_kernel::receipt::Signer;
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::bank::Mood;
use crate::tool::tool;
use crate::world::{KEY, World, body, key_id};

const PYTHON: &str = include_str!("../verifiers/verify_receipts.py");
const NODE: &str = include_str!("../verifiers/verify_receipts.js");
const STRANGER: u8 = 0x44;

fn verifiers() -> [Command; 2] {
    let mut python = Command::new(tool("venv/bin/python"));
    python.args(["-c", PYTHON]);
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", NODE]);
    // Packages are resolved from the script's directory.
    node.current_dir(tool("node"));
    [python, node]
}

/// The verifier's result for each document.
fn verdicts(mut verifier: Command, keys: &Value, documents: &[String]) -> Vec<Value> {
    let mut child = verifier
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({"keys": keys, "documents": documents});
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(asked.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn verdict(found: &Value) -> &str {
    found["verdict"].as_str().unwrap()
}

/// The same document, signed by another key that claims this key id.
fn forged(document: &Value, claimed: &str) -> String {
    let mut forged = document.clone();
    forged.as_object_mut().unwrap().remove("signature");
    let stranger = Signer::from_seed(&[STRANGER; 32]);
    let signed = canonical_value(&forged).unwrap();
    forged["signature"] = json!({
        "algorithm": "ed25519",
        "value": BASE64.encode(&stranger.sign_bytes(&signed)),
        "key_id": claimed,
        "public_key": BASE64.encode(&stranger.public_key()),
        "signed_at": document["signature"]["signed_at"],
    });
    forged.to_string()
}

/// A settlement, its compensation, and a declined payment; the first two signed before a rotation of the site's key.
async fn documents(world: &World) -> [Value; 3] {
    world.authorized("int_paid").await;
    world.execute("int_paid", KEY).await.unwrap();
    let undone = body(&world.compensate("int_paid", KEY).await.unwrap());
    world.site.rotate_key("planned").await.unwrap();
    world.bank.be(Mood::Declines);
    world.authorized("int_void").await;
    let void = body(&world.execute("int_void", KEY).await.unwrap());
    [
        undone["receipt"].clone(),
        undone["compensation_receipt"].clone(),
        void["compensation_receipt"].clone(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn at_078_strangers_verify_receipts_with_tools_of_their_own() {
    let world = World::new().await;
    let documents = documents(&world).await;
    let texts = documents.clone().map(|document| document.to_string());
    let keys = world.site.key_list();
    for verifier in verifiers() {
        let found = verdicts(verifier, &keys, &texts);
        assert!(found.iter().all(|one| verdict(one) == "good"), "{found:?}");
        assert_eq!(documents[1]["original_receipt_hash"], found[0]["hash"]);
    }
    // The receipt names the permission by its hash, which a holder of the permission can compute.
    let shown = world.shown("int_paid").await;
    assert_eq!(documents[0]["intent"]["hash"], shown["intent_hash"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_078_strangers_notice_an_altered_byte_and_pin_the_sites_keys() {
    let world = World::new().await;
    let [paid, undone, _] = documents(&world).await;
    let site_key = paid["signature"]["key_id"].as_str().unwrap();
    let altered = |document: &Value, from: &str, to: &str| {
        let text = document.to_string();
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1)
    };
    let cases = [
        (altered(&paid, "1500", "1501"), "signature_mismatch"),
        (altered(&paid, "≤", "≥"), "signature_mismatch"),
        (
            altered(&undone, "refunded", "refundex"),
            "signature_mismatch",
        ),
        (forged(&paid, &key_id(STRANGER)), "unknown_key"),
        (forged(&undone, &key_id(STRANGER)), "unknown_key"),
        (forged(&paid, site_key), "signature_mismatch"),
    ];
    let texts: Vec<_> = cases.iter().map(|(text, _)| text.clone()).collect();
    let keys = world.site.key_list();
    for verifier in verifiers() {
        let found = verdicts(verifier, &keys, &texts);
        let told: Vec<_> = found.iter().map(verdict).collect();
        let wanted: Vec<_> = cases.iter().map(|(_, wanted)| *wanted).collect();
        assert_eq!(told, wanted);
    }
}
