//! Ids that the site assigns: 128 bits with a prefix.
//!
//! Knowing the id of a receipt allows reading it, so an id must not be guessable. Entropy is an
//! argument.

use consign_kernel::ids::IntentId;

const TRANSACTION: &str = "atp_tx_";
const COMPENSATION: &str = "atp_comp_";

/// A transaction's id is derived from its row id.
pub fn transaction(row: &str) -> String {
    format!("{TRANSACTION}{row}")
}

/// The row id in the id of a transaction.
pub fn transaction_row(id: &str) -> Option<IntentId> {
    id.strip_prefix(TRANSACTION)?.parse().ok()
}

/// The id of an intent that the site creates for a client that cannot sign.
pub fn intent(entropy: u128) -> String {
    format!("atp_int_{entropy:032x}")
}

pub fn receipt(entropy: u128) -> String {
    format!("atp_rcpt_{entropy:032x}")
}

pub fn compensation(entropy: u128) -> String {
    format!("{COMPENSATION}{entropy:032x}")
}

/// Whether this is the id of a compensation receipt and not of a settlement receipt.
pub fn names_compensation(receipt_id: &str) -> bool {
    receipt_id.starts_with(COMPENSATION)
}
