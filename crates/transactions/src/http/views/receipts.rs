//! Receipts as their exact text, and the verification of documents.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::http::SiteResponse;
use crate::keyring::Verification;
use crate::site::{ReceiptList, ReceiptView};

#[derive(Serialize)]
struct ReceiptJson<'a> {
    ok: bool,
    receipt: &'a RawValue,
    data: ReceiptData<'a>,
}

#[derive(Serialize)]
struct ReceiptData<'a> {
    id: &'a str,
    transaction_id: &'a str,
    issued_at: Option<&'a str>,
    body: &'a RawValue,
}

#[derive(Serialize)]
struct ReceiptListJson {
    ok: bool,
    receipts: Vec<Box<RawValue>>,
}

impl From<ReceiptView> for SiteResponse {
    fn from(view: ReceiptView) -> Self {
        let body = ReceiptJson {
            ok: true,
            receipt: &view.receipt,
            data: ReceiptData {
                id: &view.receipt_id,
                transaction_id: &view.transaction_id,
                issued_at: view.issued_at.as_deref(),
                body: &view.receipt,
            },
        };
        Self::new(200, &body)
    }
}

impl From<ReceiptList> for SiteResponse {
    fn from(list: ReceiptList) -> Self {
        let body = ReceiptListJson {
            ok: true,
            receipts: list.receipts,
        };
        Self::new(200, &body)
    }
}

impl From<Verification> for SiteResponse {
    fn from(verification: Verification) -> Self {
        // `ok` is repeated at the top, so that a client which reads only that member is not misled.
        let ok = verification.ok;
        Self::new(200, &json!({"ok": ok, "verification": verification}))
    }
}
