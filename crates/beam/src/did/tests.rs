//! DIDs of agents and keys, and whole documents.

use super::*;

const ALICE: &str = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
const ALICE_MULTIBASE: &str = "z6MkehRgf7yJbgaGfYsdoAsKdBPE3dj2CYhowQdcjqSJgvVd";
const BOB: &str = "MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=";

fn key(text: &str) -> BeamPublicKey {
    BeamPublicKey::parse(text).unwrap()
}

#[test]
fn agents_and_their_dids_correspond() {
    for (beam_id, did) in [
        ("alice@acme.beam.directory", "did:beam:acme:alice"),
        ("alice@beam.directory", "did:beam:alice"),
        ("zoe@beam.directory", "did:beam:zoe"),
        ("a_b-1@0-x.beam.directory", "did:beam:0-x:a_b-1"),
    ] {
        assert_eq!(of_agent(beam_id).as_deref(), Some(did));
        assert_eq!(parse(did), Some(DidSubject::Agent(beam_id.to_owned())));
    }
    for beam_id in [
        "",
        "alice",
        "@beam.directory",
        "alice@.beam.directory",
        "alice@acmebeam.directory",
        "alice@a.b.beam.directory",
        "alice@acme.beam.id",
        "Alice@beam.directory",
        "alice@acme@beam.directory",
        "a:b@beam.directory",
    ] {
        assert_eq!(of_agent(beam_id), None, "{beam_id}");
    }
    for did in [
        "",
        "did:beam:",
        "did:beam::alice",
        "did:beam:acme:",
        "did:beam:a:b:c",
        "did:beam:Alice",
        "did:beam:alice@acme",
        "did:beam:z6Mk",
        "did:key:z6MkehRgf7yJbgaGfYsdoAsKdBPE3dj2CYhowQdcjqSJgvVd",
    ] {
        assert_eq!(parse(did), None, "{did}");
    }
}

#[test]
fn a_key_and_its_did_correspond() {
    let did = of_key(&key(ALICE));
    assert_eq!(did, format!("did:beam:{ALICE_MULTIBASE}"));
    assert_eq!(parse(&did), Some(DidSubject::Key(key(ALICE))));
}

#[test]
fn the_document_of_an_agent_lists_all_keys_and_authorises_the_active_one() {
    let (alice, bob) = (key(ALICE), key(BOB));
    let keys = [
        DidKey {
            key: &bob,
            revoked_at: Some(Micros(1_767_225_600_123_456)),
        },
        DidKey {
            key: &alice,
            revoked_at: None,
        },
    ];
    let agent = DidAgent {
        beam_id: "alice@acme.beam.directory",
        keys: &keys,
        directory_url: "https://beam.directory/",
        created_at: Some(Micros(0)),
        updated_at: None,
    };
    let (alice_id, bob_id) = (alice.to_multibase(), bob.to_multibase());
    let expected = [
        r#"{"@context":["https://www.w3.org/ns/did/v1","https://w3id.org/security/suites/ed25519-2020/v1"],"id":"did:beam:acme:alice","alsoKnownAs":["alice@acme.beam.directory"],"verificationMethod":["#,
        &format!(r#"{{"id":"did:beam:acme:alice#{bob_id}","type":"Ed25519VerificationKey2020","controller":"did:beam:acme:alice","publicKeyMultibase":"{bob_id}","beamStatus":"revoked","beamRevokedAt":"2026-01-01T00:00:00.123Z"}},"#),
        &format!(r#"{{"id":"did:beam:acme:alice#{alice_id}","type":"Ed25519VerificationKey2020","controller":"did:beam:acme:alice","publicKeyMultibase":"{alice_id}","beamStatus":"active"}}],"#),
        &format!(r#""authentication":["did:beam:acme:alice#{alice_id}"],"assertionMethod":["did:beam:acme:alice#{alice_id}"],"#),
        &format!(r#""capabilityInvocation":["did:beam:acme:alice#{alice_id}"],"capabilityDelegation":["did:beam:acme:alice#{alice_id}"],"#),
        r#""service":[{"id":"did:beam:acme:alice#directory","type":"BeamDirectoryService","serviceEndpoint":"https://beam.directory/agents/alice%40acme.beam.directory"},"#,
        r#"{"id":"did:beam:acme:alice#did-resolution","type":"DIDResolutionService","serviceEndpoint":"https://beam.directory/did/did%3Abeam%3Aacme%3Aalice"},"#,
        r#"{"id":"did:beam:acme:alice#keys","type":"BeamKeyStateService","serviceEndpoint":"https://beam.directory/agents/alice%40acme.beam.directory/keys"}],"#,
        r#""created":"1970-01-01T00:00:00.000Z"}"#,
    ]
    .concat();
    assert_eq!(agent_document(&agent).unwrap().to_text(), expected);

    let revoked = DidAgent {
        keys: &keys[..1],
        ..agent
    };
    let document = agent_document(&revoked).unwrap();
    let authentication = document.get("authentication").unwrap();
    assert_eq!(authentication.as_array(), Some(&[][..]));
    let nobody = DidAgent {
        beam_id: "nobody",
        ..agent
    };
    assert_eq!(agent_document(&nobody), None);
}

#[test]
fn the_document_of_a_key_follows_from_the_key() {
    let document = key_document(&key(ALICE), "http://127.0.0.1:3100");
    let did = format!("did:beam:{ALICE_MULTIBASE}");
    assert_eq!(document.get("id").and_then(BeamValue::as_str), Some(&*did));
    assert!(document.get("alsoKnownAs").is_none());
    let first = |name: &str| &document.get(name).unwrap().as_array().unwrap()[0];
    assert_eq!(
        first("authentication").as_str(),
        Some(&*format!("{did}#{ALICE_MULTIBASE}"))
    );
    assert_eq!(
        first("service").to_text(),
        format!(
            r#"{{"id":"{did}#resolver","type":"DIDResolutionService","serviceEndpoint":"http://127.0.0.1:3100/did/did%3Abeam%3A{ALICE_MULTIBASE}"}}"#
        )
    );
}
