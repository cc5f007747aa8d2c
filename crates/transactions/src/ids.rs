//! Names that the site gives: 128 random bits behind a prefix.
//!
//! Whoever knows the id of a receipt may read it, so an id must not be guessable. Entropy is handed in.

pub fn transaction(entropy: u128) -> String {
    format!("atp_tx_{entropy:032x}")
}

pub fn receipt(entropy: u128) -> String {
    format!("atp_rcpt_{entropy:032x}")
}

pub fn compensation(entropy: u128) -> String {
    format!("atp_comp_{entropy:032x}")
}
