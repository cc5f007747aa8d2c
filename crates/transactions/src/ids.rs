//! Names that the site gives: 128 bits behind a prefix.
//!
//! Whoever knows the id of a receipt may read it, so an id must not be guessable. Entropy is handed in.

use consign_kernel::ids::IntentId;

const TRANSACTION: &str = "atp_tx_";

/// A transaction is called by its row, which the ledger writes as text.
pub fn transaction(row: &str) -> String {
    format!("{TRANSACTION}{row}")
}

/// The row behind the name of a transaction.
pub fn transaction_row(id: &str) -> Option<IntentId> {
    id.strip_prefix(TRANSACTION)?.parse().ok()
}

pub fn receipt(entropy: u128) -> String {
    format!("atp_rcpt_{entropy:032x}")
}

pub fn compensation(entropy: u128) -> String {
    format!("atp_comp_{entropy:032x}")
}
