//! Names that the site gives: 128 bits behind a prefix.
//!
//! Whoever knows the id of a receipt may read it, so an id must not be guessable. Entropy is handed in.

use consign_kernel::ids::IntentId;

const TRANSACTION: &str = "atp_tx_";
const COMPENSATION: &str = "atp_comp_";

/// A transaction is called by its row, which the ledger writes as text.
pub fn transaction(row: &str) -> String {
    format!("{TRANSACTION}{row}")
}

/// The row behind the name of a transaction.
pub fn transaction_row(id: &str) -> Option<IntentId> {
    id.strip_prefix(TRANSACTION)?.parse().ok()
}

/// An intent that the site writes down itself, for a client that cannot sign.
pub fn intent(entropy: u128) -> String {
    format!("atp_int_{entropy:032x}")
}

pub fn receipt(entropy: u128) -> String {
    format!("atp_rcpt_{entropy:032x}")
}

pub fn compensation(entropy: u128) -> String {
    format!("{COMPENSATION}{entropy:032x}")
}

/// Whether this is the name of a compensation receipt, and not of a settlement's.
pub fn names_compensation(receipt_id: &str) -> bool {
    receipt_id.starts_with(COMPENSATION)
}
