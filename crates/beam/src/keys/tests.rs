//! Keys in all their encodings.

use data_encoding::HEXLOWER;

use super::*;

const PUBLIC: &str = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
const RAW: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
const MULTIBASE: &str = "z6MkehRgf7yJbgaGfYsdoAsKdBPE3dj2CYhowQdcjqSJgvVd";

fn public() -> BeamPublicKey {
    BeamPublicKey::parse(PUBLIC).unwrap()
}

#[test]
fn a_key_pair_is_read_and_printed_in_all_encodings() {
    let private = BeamPrivateKey::parse(PRIVATE).unwrap();
    let seed: Vec<u8> = (0..32).collect();
    let seeded = BeamPrivateKey::from_seed(&seed.try_into().unwrap());
    for public in [public(), private.public_key(), seeded.public_key()] {
        assert_eq!(public.to_string(), PUBLIC);
        assert_eq!(HEXLOWER.encode(&public.to_raw()), RAW);
        assert_eq!(public.to_multibase(), MULTIBASE);
    }
    assert_eq!(BeamPublicKey::parse_multibase(MULTIBASE), Ok(public()));
}

#[test]
fn all_spellings_of_base64_are_the_same_key() {
    let url = PUBLIC.replace('+', "-").replace('/', "_");
    for text in [
        PUBLIC.trim_end_matches('='),
        &url,
        url.trim_end_matches('='),
        &format!(" {PUBLIC}\n"),
    ] {
        assert_eq!(BeamPublicKey::parse(text), Ok(public()), "{text}");
    }
    let unpadded = BeamPrivateKey::parse(&format!("{PRIVATE}\n")).unwrap();
    assert_eq!(unpadded.public_key(), public());
}

#[test]
fn both_alphabets_decode_to_the_same_bytes() {
    for text in ["+/+/+w==", "-_-_-w==", "-_+/+w=", "-_-_-w"] {
        let bytes = decode_base64(text).map(|bytes| bytes.to_vec());
        assert_eq!(bytes, Some(vec![0xfb, 0xff, 0xbf, 0xfb]), "{text}");
    }
}

#[test]
fn what_is_no_ed25519_key_is_refused() {
    let der = |prefix: &str, length: usize| {
        let mut bytes = HEXLOWER.decode(prefix.as_bytes()).unwrap();
        bytes.resize(length, 9);
        BASE64_STANDARD.encode(bytes)
    };
    let weak = BASE64_STANDARD.encode([&SPKI_PREFIX[..], &[0; 32]].concat());
    let x25519 = der("302a300506032b656e032100", 44);
    let rsa = der("30820122300d06092a864886f70d01010105000382010f00", 294);
    for (text, expected) in [
        ("", BeamKeyError::NotEd25519),
        ("not a key", BeamKeyError::NotBase64),
        ("MCow*BQY", BeamKeyError::NotBase64),
        (&x25519, BeamKeyError::NotEd25519),
        (&rsa, BeamKeyError::NotEd25519),
        (
            &der("302a300506032b6570032100", 43),
            BeamKeyError::NotEd25519,
        ),
        (
            &der("302a300506032b6570032100", 45),
            BeamKeyError::NotEd25519,
        ),
        (PRIVATE, BeamKeyError::NotEd25519),
        (RAW, BeamKeyError::NotEd25519),
        (&weak, BeamKeyError::Weak),
        (&"A".repeat(513), BeamKeyError::NotBase64),
        // The stray bits of the last character are not zero.
        (&PUBLIC.replace("Mbg=", "Mbh="), BeamKeyError::NotBase64),
    ] {
        assert_eq!(BeamPublicKey::parse(text), Err(expected), "{text}");
    }
    for text in ["", PUBLIC, RAW, &PRIVATE[..60], &format!("{PRIVATE}AAAA")] {
        let refused = BeamPrivateKey::parse(text).unwrap_err();
        assert_eq!(refused, BeamKeyError::NotEd25519, "{text}");
    }
    for text in [
        "",
        "z",
        &MULTIBASE[1..],
        &MULTIBASE[..20],
        "z0",
        &format!("{MULTIBASE}1"),
    ] {
        let refused = BeamPublicKey::parse_multibase(text);
        assert_eq!(refused, Err(BeamKeyError::NotMultibase), "{text}");
    }
}

#[test]
fn a_signature_is_read_in_all_spellings_and_holds_for_its_message_only() {
    let private = BeamPrivateKey::parse(PRIVATE).unwrap();
    let signature = private.sign(b"message");
    assert_eq!(signature.len(), 88);
    let url = signature.replace('+', "-").replace('/', "_");
    for text in [&*signature, &url, url.trim_end_matches('=')] {
        assert!(public().verify(b"message", text), "{text}");
        assert!(!public().verify(b"massage", text));
    }
    for text in [
        "",
        "*",
        &signature[..84],
        &format!("{}AAAA", &signature[..84]),
    ] {
        assert!(!public().verify(b"message", text), "{text}");
    }
    let other = BeamPrivateKey::from_seed(&[7; 32]);
    assert!(!public().verify(b"message", &other.sign(b"message")));
}

#[test]
fn debug_output_shows_no_secret() {
    let private = BeamPrivateKey::parse(PRIVATE).unwrap();
    assert_eq!(
        format!("{private:?}"),
        format!("BeamPrivateKey(of {PUBLIC})")
    );
    assert_eq!(
        format!("{:?}", public()),
        format!("BeamPublicKey({PUBLIC})")
    );
}
