//! Offline verification of receipts of agent transactions.
//!
//! Invariant: only a key that the user pinned makes a receipt genuine. An embedded key is never trusted, and without a
//! pinned key nothing is verified.

use consign_transactions::document::{AtpDocument, AtpPublicKey, VERIFY_BYTES_MAX};
use consign_transactions::instant;
use consign_transactions::keyring::{InvalidReason, Keyring, Verification};
use consign_transactions::receipt::{COMPENSATION_TYPE, SETTLEMENT_TYPE};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::commands::OutputArgs;
use crate::commands::tx::{amount, now};
use crate::failure::{Exit, Failure};
use crate::{input, out, render};

/// The trusted keys of a site.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// For receipts of agent transactions: trust this key of the site, written ed25519:BASE64
    #[arg(long, value_name = "KEY", conflicts_with = "site_keys")]
    site_key: Option<String>,

    /// For receipts of agent transactions: trust the keys in this file, a saved /api/atp/keys (`site key show --json`) or
    /// /.well-known/wab.json
    #[arg(long, value_name = "FILE")]
    site_keys: Option<String>,

    /// Verify also that it is the receipt of this signed intent
    #[arg(long, value_name = "FILE")]
    intent: Option<String>,

    /// Verify also that it is the compensation of this receipt
    #[arg(long, value_name = "FILE")]
    original: Option<String>,
}

#[derive(Serialize)]
struct SiteVerifyReport<'a> {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    key_id: Option<&'a str>,
    key_status: Option<&'a str>,
    site: &'a str,
    receipt: &'a RawValue,
}

/// Parses the receipt of an agent transaction: the receipt itself, or an answer of a site that contains it as `receipt`.
pub(super) fn parse_receipt(text: &str) -> Option<AtpDocument> {
    let document = AtpDocument::read(text.as_bytes(), VERIFY_BYTES_MAX).ok()?;
    if is_receipt(&document) {
        return Some(document);
    }
    let inner = document.inner("receipt")?.ok()?;
    is_receipt(&inner).then_some(inner)
}

fn is_receipt(document: &AtpDocument) -> bool {
    let kind = document.get("type");
    let kind = kind.as_ref().and_then(consign_kernel::json::Raw::as_str);
    kind.is_some_and(|kind| kind == SETTLEMENT_TYPE || kind == COMPENSATION_TYPE)
}

impl PinArgs {
    pub(super) fn verify(
        &self,
        document: &AtpDocument,
        output: OutputArgs,
    ) -> anyhow::Result<Exit> {
        let ring = self.ring(document)?;
        let found = ring.verify(document, now());
        let receipt = std::str::from_utf8(document.sent())?;
        let members: Value = serde_json::from_str(receipt)?;
        let wrong = match found.reason {
            Some(reason) => Some(describe(reason)),
            None => self.foreign(&members)?,
        };
        if output.json {
            out::json(&SiteVerifyReport {
                valid: wrong.is_none(),
                reason: wrong.map(|(name, _)| name),
                key_id: found.key_id.as_deref(),
                key_status: found.key_status,
                site: ring.site(),
                receipt: serde_json::from_str(receipt)?,
            })?;
        }
        if let Some((_, why)) = wrong {
            return Err(Failure::failed(why).into());
        }
        if !output.json {
            out::data(&human(&found, &members))?;
        }
        Ok(Exit::Done)
    }

    /// Why a genuine receipt does not prove what the user asked for.
    fn foreign(&self, receipt: &Value) -> anyhow::Result<Option<Mismatch>> {
        if let Some(path) = &self.intent {
            let intent = input::file("the intent", path)?;
            let intent = AtpDocument::read(intent.as_bytes(), VERIFY_BYTES_MAX);
            let intent = intent.map_err(|problem| Failure::usage(problem.to_string()))?;
            if receipt["intent"]["hash"] != intent.hash() {
                return Ok(Some((
                    "intent_mismatch",
                    "the receipt is genuine, but belongs to another intent",
                )));
            }
        }
        if let Some(path) = &self.original {
            let original = parse_receipt(&input::file("the original receipt", path)?);
            if original.is_none_or(|original| receipt["original_receipt_hash"] != original.hash()) {
                return Ok(Some((
                    "original_mismatch",
                    "the receipt is genuine, but does not compensate the other receipt",
                )));
            }
        }
        Ok(None)
    }

    fn ring(&self, document: &AtpDocument) -> anyhow::Result<Keyring> {
        if let Some(path) = &self.site_keys {
            let ring = Keyring::read(&input::file("the site's keys", path)?);
            return ring.map_err(|error| {
                Failure::usage(format!(
                    "{} contains no keys of a site: {error}",
                    render::safe(path)
                ))
                .hint("save them again with: consign site key show --json")
                .into()
            });
        }
        let Some(text) = &self.site_key else {
            return Err(Failure::usage("no key of the site to verify with")
                .hint("get its keys once from a trusted source, and name them with --site-keys or --site-key")
                .into());
        };
        let key = AtpPublicKey::parse(text).ok_or_else(|| {
            Failure::usage(format!("{} is not a public key", render::safe(text)))
                .hint("write it as ed25519: and the base64 of its 32 bytes")
        })?;
        // The user asserts that a named key is the site's, so it also vouches for the site's name in the receipt.
        let site = document.get("site");
        let site = site.as_ref().and_then(consign_kernel::json::Raw::as_str);
        Ok(Keyring::of_one(site.unwrap_or_default(), key))
    }
}

/// The protocol's name of the error, and a sentence.
type Mismatch = (&'static str, &'static str);

fn describe(reason: InvalidReason) -> Mismatch {
    match reason {
        InvalidReason::NoSignature => ("no_signature", "the receipt is not signed"),
        InvalidReason::UnsupportedAlgorithm => (
            "unsupported_algorithm",
            "the receipt is signed by another algorithm than ed25519",
        ),
        InvalidReason::KeyIdMismatch => (
            "key_id_mismatch",
            "the receipt names one key and embeds another",
        ),
        InvalidReason::SignatureMismatch => (
            "signature_mismatch",
            "the signature does not match: the receipt was altered or not issued by this key",
        ),
        InvalidReason::UnknownKey => (
            "unknown_key",
            "signed by a key that is not among the trusted ones",
        ),
        InvalidReason::KeyRevoked => ("key_revoked", "signed by a key that the site has revoked"),
        InvalidReason::KeyExpired => (
            "key_expired",
            "issued at a time when the key that signed it was not in use",
        ),
        InvalidReason::SiteMismatch => (
            "site_mismatch",
            "the receipt belongs to another site than the trusted keys",
        ),
        InvalidReason::NotAReceipt => (
            "not_a_receipt",
            "the site signed this, but it is not a receipt",
        ),
    }
}

fn human(found: &Verification, receipt: &Value) -> String {
    let word = |value: &Value| value.as_str().map(render::safe);
    // A compensation has it at the top level, a settlement inside the transaction.
    let transaction = word(&receipt["transaction"]["id"]);
    let transaction = transaction.or_else(|| word(&receipt["transaction_id"]));
    let key = found.key_id.as_deref().map(render::safe);
    let standing = found.key_status.unwrap_or_default();
    let mut text = format!(
        "genuine, signed by the {standing} key {} of {}\n",
        key.unwrap_or_default(),
        word(&receipt["site"]).unwrap_or_default(),
    );
    text.push_str(&render::fields(&[
        ("receipt", word(&receipt["receipt_id"])),
        ("type", word(&receipt["type"])),
        ("issued at", found.issued_at.map(instant::print)),
        ("intent", word(&receipt["intent_id"])),
        ("intent hash", word(&receipt["intent"]["hash"])),
        ("purpose", word(&receipt["intent"]["purpose"])),
        ("transaction", transaction),
        ("amount", Some(amount_of(receipt))),
        ("outcome", word(&receipt["outcome"])),
        ("reason", word(&receipt["reason"])),
        ("undoes", word(&receipt["original_receipt_id"])),
        ("rail", word(&receipt["rail"]["name"])),
        ("reference", word(&receipt["rail"]["reference"])),
        ("payment", word(&receipt["rail"]["payment_id"])),
        ("refund", word(&receipt["rail"]["refund_id"])),
    ]));
    text
}

/// The amount that was paid or refunded.
pub(super) fn amount_of(receipt: &Value) -> String {
    let paid = &receipt["transaction"];
    let (cents, currency) = if paid["amount_cents"].is_null() {
        (&receipt["compensated_cents"], &receipt["currency"])
    } else {
        (&paid["amount_cents"], &paid["currency"])
    };
    match (cents.as_u64(), currency.as_str()) {
        (Some(cents), Some(currency)) => amount(cents, currency),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIPT: &str = r#"{"type":"atp.receipt.v1","receipt_id":"atp_rcpt_1","site":"https://shop.example","intent_id":"int_abc",
        "issued_at":"2026-05-25T12:00:05.250Z","intent":{"hash":"sha256:bb","purpose":"a book"},
        "transaction":{"id":"atp_tx_1","amount_cents":1500,"currency":"EUR"},"rail":{"name":"null","reference":"atp_5d","payment_id":null}}"#;

    #[test]
    fn receipts_are_recognised_alone_and_in_answers() {
        assert!(parse_receipt(RECEIPT).is_some());
        assert!(parse_receipt(&format!(r#"{{"ok":true,"receipt":{RECEIPT}}}"#)).is_some());
        for other in [
            "{}",
            "[]",
            r#"{"type":"consign.receipt.v1"}"#,
            r#"{"receipt":null}"#,
        ] {
            assert!(parse_receipt(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_genuine_receipt_reads_as_fields() {
        let receipt: Value = serde_json::from_str(RECEIPT).unwrap();
        let found = Verification {
            ok: true,
            signature_valid: true,
            trusted: true,
            key_id: Some("ELpoLIrRNROXHotW".to_owned()),
            key_status: Some("current"),
            issued_at: instant::parse("2026-05-25T12:00:05.250Z"),
            age_seconds: Some(1),
            kind: None,
            stored: false,
            reason: None,
        };
        assert_eq!(
            human(&found, &receipt),
            "genuine, signed by the current key ELpoLIrRNROXHotW of https://shop.example\n\
             receipt      atp_rcpt_1\n\
             type         atp.receipt.v1\n\
             issued at    2026-05-25T12:00:05.250Z\n\
             intent       int_abc\n\
             intent hash  sha256:bb\n\
             purpose      a book\n\
             transaction  atp_tx_1\n\
             amount       1500 cents EUR\n\
             rail         null\n\
             reference    atp_5d\n"
        );
    }
}
