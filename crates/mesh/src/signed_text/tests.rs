//! The published signatures.

use super::*;

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

fn check(text: &MeshSignedText, signer: u8, signature: &str) {
    assert_eq!(text.sign(&key(signer)), signature, "{}", text.as_str());
    assert!(text.verify(key(signer).public_key(), signature));
    assert!(!text.verify(key(signer + 1).public_key(), signature));
}

#[test]
fn cm_161_a_hello_has_the_published_signature() {
    let public = key(1).public_key().to_string();
    let text = MeshSignedText::hello("mesh-1", "m-a", &public, 1_700_000_000_000);
    check(
        &text,
        1,
        "fa3d113e78044c188b29090bbd6cd321c79db498afcb981beaf99c425ca36b287a48efe9f1ddedf48651a708899a49f2301aeef7d6ed9994bf92d8ff54d37c0c",
    );
    let later = MeshSignedText::hello("mesh-1", "m-a", &public, 1_700_000_000_001);
    assert!(!later.verify(key(1).public_key(), &text.sign(&key(1))));
}

#[test]
fn cm_161_an_attestation_has_the_published_signature() {
    let [parent, session] = [1, 3].map(|byte| key(byte).public_key().to_string());
    check(
        &MeshSignedText::attestation(&parent, &session, 1_700_043_200_000),
        1,
        "de95d2bb1c351605b882ac0d25580b28bd5e232ea473e0240c04712d8734c54be9d76019a94c8635ebec059c6f4676a6fc24f23108f907b41e0bc8c9adc23a0e",
    );
}

#[test]
fn cm_161_a_session_hello_has_the_published_signature() {
    let [parent, session] = [1, 3].map(|byte| key(byte).public_key().to_string());
    check(
        &MeshSignedText::session_hello("mesh-1", &parent, &session, 1_700_000_000_000),
        3,
        "90ae6b30a5c0259c8c34db63e031e532e262408d4b5f832e2075f95aee3520cc025c090fdd78509d8f78478cd8460c2ccd4e861d36a79a0a47f57cd125a5f70b",
    );
}

#[test]
fn cm_161_an_invite_has_the_published_signature() {
    let owner = "fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618";
    assert_eq!(key(9).public_key().to_string(), owner);
    let invite = SignedInvite {
        mesh_id: "mesh-1",
        mesh_slug: "mesh-one",
        broker_url: "ws://127.0.0.1:7900/ws",
        expires_at_s: 1_800_000_000,
        mesh_root_key: &"A".repeat(43),
        role: "member",
        owner_pubkey: owner,
    };
    let text = MeshSignedText::invite(&invite);
    assert_eq!(
        text.as_str(),
        "1|mesh-1|mesh-one|ws://127.0.0.1:7900/ws|1800000000|AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA|member|fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618"
    );
    check(
        &text,
        9,
        "685d61f19b25d06ab8cd862d20d6ca5e97288591958aab083fd316ad29485b04fa508c5d6cfc614da3bee21259c200255b6c8009a772aae040d873e102cc0200",
    );
}

#[test]
fn other_texts_have_their_listed_fields() {
    let text = MeshSignedText::invite_v2("mesh-1", "i-1", 1_800_000_000, "member", "ab");
    assert_eq!(text.as_str(), "v=2|mesh-1|i-1|1800000000|member|ab");
    let rotation = SignedRotation {
        mesh_id: "mesh-1",
        member_id: "m-a",
        old_pubkey: "aa",
        new_pubkey: "bb",
        timestamp_ms: 7,
    };
    let text = MeshSignedText::rotation(&rotation);
    assert_eq!(text.as_str(), "claudemesh-key-rotate|mesh-1|m-a|aa|bb|7");
}
