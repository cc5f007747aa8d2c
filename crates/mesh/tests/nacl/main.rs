//! Interoperability with libsodium, through `PyNaCl` in a process of its own: what one side signs or seals, the other verifies
//! or opens, and both compute the same bytes. `cargo xtask test --only tools` installs `PyNaCl`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use consign_mesh::keys::{MeshPrivateKey, X25519Secret};
use consign_mesh::nacl::{self, SymmetricKey};
use consign_mesh::topic_key;
use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("libsodium.py");
const NONCE: [u8; 24] = [0x5a; 24];
const TEXT: &[u8] = "grüße\0 with a zero byte".as_bytes();

/// Bodies around the sizes of blocks, and a long one.
const LENGTHS: &[usize] = &[0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 4_096, 48_000];

/// The sum of the public key of seed 1 and the point of order two.
const MIXED: &str = "63771c228bf60e6a02ad24d2c345a28d3598f640e26bede40c8b77fe4bf090a3";

/// The answers of libsodium to a list of questions.
fn libsodium(questions: &Value) -> Vec<Value> {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("xtask/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing; install it with: cargo xtask test --only tools",
        python.display()
    );
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(questions.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), questions.as_array().unwrap().len());
    answers
}

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn bytes(answer: &Value) -> Vec<u8> {
    HEXLOWER
        .decode(answer.as_str().unwrap().as_bytes())
        .unwrap()
}

#[test]
fn both_sign_and_convert_keys_alike() {
    let seeds: Vec<u8> = (1..=20).collect();
    let questions: Vec<Value> = seeds
        .iter()
        .map(|seed| {
            let signature = key(*seed).sign(TEXT);
            json!({"ask": "sign", "seed": hex(&[*seed; 32]), "text": hex(TEXT), "signature": signature})
        })
        .collect();
    let answers = libsodium(&json!(questions));
    for (seed, answer) in seeds.into_iter().zip(answers) {
        let ours = key(seed);
        assert_eq!(answer["public"], ours.public_key().to_string());
        assert_eq!(answer["secret"], *ours.reveal());
        assert_eq!(answer["signature"], ours.sign(TEXT));
        assert_eq!(answer["verifies"], true);
        assert_eq!(answer["rejects"], true, "libsodium accepted a changed text");
        let converted = ours.to_x25519();
        assert_eq!(answer["x_secret"], hex(&*converted.reveal()));
        let public = ours.public_key().to_x25519().unwrap();
        assert_eq!(answer["x_public"], hex(&public.to_bytes()));
        assert_eq!(public, converted.public_key());
    }
}

#[test]
fn libsodium_opens_our_boxes_and_we_open_those_of_libsodium() {
    let (sender, recipient) = (key(1), key(2));
    let shared = |own: &MeshPrivateKey, other: &MeshPrivateKey| {
        let public = other.public_key().to_x25519().unwrap();
        SymmetricKey::agreed(&own.to_x25519(), public).unwrap()
    };
    let bodies: Vec<Vec<u8>> = LENGTHS.iter().map(|length| vec![0x61; *length]).collect();
    let questions: Vec<Value> = bodies
        .iter()
        .map(|body| {
            let sealed = shared(&sender, &recipient).seal(body, &NONCE);
            json!({"ask": "box", "sender": hex(&[1; 32]), "recipient": hex(&[2; 32]), "nonce": hex(&NONCE),
                "plain": hex(body), "sealed": hex(&sealed)})
        })
        .collect();
    for (body, answer) in bodies.iter().zip(libsodium(&json!(questions))) {
        assert_eq!(bytes(&answer["opened"]), *body);
        let theirs = bytes(&answer["sealed"]);
        assert_eq!(theirs, shared(&sender, &recipient).seal(body, &NONCE));
        let opened = shared(&recipient, &sender).open(&theirs, &NONCE).unwrap();
        assert_eq!(*opened, *body);
    }
}

#[test]
fn topic_bodies_and_sealed_topic_keys_are_exchanged_both_ways() {
    let topic = SymmetricKey::from_bytes(&[7; 32]);
    let (sender, recipient) = (key(1), key(2));
    let ours = topic_key::seal_topic_key(&topic, &sender, recipient.public_key(), &NONCE).unwrap();
    let questions = json!([
        {"ask": "secretbox", "key": hex(&[7; 32]), "nonce": hex(&NONCE), "plain": hex(TEXT),
            "sealed": hex(&topic.seal(TEXT, &NONCE))},
        {"ask": "topic_key", "sender": hex(&[1; 32]), "recipient": hex(&[2; 32]), "nonce": hex(&NONCE),
            "plain": hex(&[7; 32]), "sealed": ours},
    ]);
    let answers = libsodium(&questions);
    assert_eq!(bytes(&answers[0]["opened"]), TEXT);
    let theirs = bytes(&answers[0]["sealed"]);
    assert_eq!(topic.open(&theirs, &NONCE).unwrap()[..], *TEXT);
    assert_eq!(bytes(&answers[1]["opened"]), [7; 32]);
    let theirs = answers[1]["sealed"].as_str().unwrap();
    let (opened, by) = topic_key::open_topic_key(theirs, &NONCE, &recipient.to_x25519()).unwrap();
    assert_eq!(opened.reveal(), &[7; 32]);
    assert_eq!(by, sender.to_x25519().public_key());
    assert_eq!(BASE64.decode(theirs.as_bytes()).unwrap().len(), 80);
}

#[test]
fn anonymous_boxes_are_opened_by_both() {
    let recipient = key(2).to_x25519();
    let ephemeral = X25519Secret::from_bytes(&[0x33; 32]);
    let ours = nacl::seal_anonymous(TEXT, recipient.public_key(), &ephemeral).unwrap();
    let questions = json!([{"ask": "seal", "recipient": hex(&[2; 32]), "plain": hex(TEXT), "sealed": hex(&ours)}]);
    let answers = libsodium(&questions);
    assert_eq!(bytes(&answers[0]["opened"]), TEXT);
    let theirs = bytes(&answers[0]["sealed"]);
    assert_eq!(
        nacl::open_anonymous(&theirs, &recipient).unwrap()[..],
        *TEXT
    );
}

#[test]
fn both_refuse_the_same_weak_keys() {
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut order_two = [0xff; 32];
    order_two[0] = 0xec;
    order_two[31] = 0x7f;
    let mut no_point = [0; 32];
    no_point[0] = 2;
    let mixed = HEXLOWER
        .decode(MIXED.as_bytes())
        .unwrap()
        .try_into()
        .unwrap();
    let good = key(1).public_key().to_bytes();
    let keys = [neutral, order_two, no_point, mixed, good];
    let questions: Vec<Value> = keys
        .iter()
        .map(|key| json!({"ask": "convert", "public": hex(key)}))
        .collect();
    for (key, answer) in keys.iter().zip(libsodium(&json!(questions))) {
        let ours = consign_mesh::keys::MeshPublicKey::from_bytes(*key).to_x25519();
        let ours = ours.map(|public| hex(&public.to_bytes()));
        assert_eq!(
            answer["x_public"].as_str().map(str::to_owned),
            ours,
            "{}",
            hex(key)
        );
    }
}
