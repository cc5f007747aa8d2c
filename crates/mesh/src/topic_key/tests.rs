//! The published sealed key.

use super::*;

const SEALED: &str = "GxtY3VDqFLYNoXt5DNAnVNlwybq4ZOuzwPMBb+UdP1fkdDXQlR9M4jsig06EftalxH/apVtmq+XHoNR5ebsbyB28MstETDQgnyaXGcdKWwA=";

fn nonce() -> NaclNonce {
    std::array::from_fn(|at| u8::try_from(at).unwrap())
}

#[test]
fn cm_162_a_sealed_topic_key_has_the_published_bytes() {
    let [sender, recipient] = [1, 2].map(|byte| MeshPrivateKey::from_seed(&[byte; 32]));
    let topic_key = SymmetricKey::from_bytes(&[7; 32]);
    let sealed = seal_topic_key(&topic_key, &sender, recipient.public_key(), &nonce()).unwrap();
    assert_eq!(sealed, SEALED);
    let (opened, by) = open_topic_key(SEALED, &nonce(), &recipient.to_x25519()).unwrap();
    assert_eq!(opened.reveal(), &[7; 32]);
    assert_eq!(by, sender.to_x25519().public_key());
    let stranger = MeshPrivateKey::from_seed(&[3; 32]).to_x25519();
    assert!(open_topic_key(SEALED, &nonce(), &stranger).is_none());
    for malformed in ["", "AAAA", &SEALED[4..]] {
        assert!(open_topic_key(malformed, &nonce(), &recipient.to_x25519()).is_none());
    }
}

#[test]
fn a_sealed_text_of_another_length_is_no_key() {
    let [sender, recipient] = [1, 2].map(|byte| MeshPrivateKey::from_seed(&[byte; 32]).to_x25519());
    for length in [0, 31, 33, 64] {
        let shared = SymmetricKey::agreed(&sender, recipient.public_key()).unwrap();
        let sealed = shared.seal(&vec![7; length], &nonce());
        let text = BASE64_STANDARD.encode([&sender.public_key().to_bytes()[..], &sealed].concat());
        assert!(
            open_topic_key(&text, &nonce(), &recipient).is_none(),
            "{length}"
        );
    }
}
