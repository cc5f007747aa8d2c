//! The state diagrams in ARCHITECTURE.md are the ones that the tables draw.
//!
//! `CONSIGN_BLESS=1` writes them into the document instead of comparing.
#![expect(
    clippy::disallowed_methods,
    reason = "the document is a file, and only this test reads it"
)]

use std::path::{Path, PathBuf};
use std::{env, fs};

use consign_kernel::profile::diagrams;

const BEGIN: &str = "<!-- diagrams:begin -->\n";
const END: &str = "<!-- diagrams:end -->";

#[test]
fn the_architecture_document_shows_the_tables_as_they_are() {
    let path = document();
    let text = fs::read_to_string(&path).expect("ARCHITECTURE.md stands at the root");
    let (before, rest) = text.split_once(BEGIN).expect("the opening marker is there");
    let (shown, after) = rest.split_once(END).expect("the closing marker is there");
    // Blank lines keep the markers apart from the headings; they are no part of the drawing.
    let drawn = format!("\n{}\n", diagrams());
    if env::var_os("CONSIGN_BLESS").is_some_and(|bless| bless == "1") {
        let blessed = format!("{before}{BEGIN}{drawn}{END}{after}");
        fs::write(&path, blessed).expect("the document can be written");
        return;
    }
    assert_eq!(
        shown, drawn,
        "the tables changed; run: CONSIGN_BLESS=1 cargo test -p consign-kernel --test diagrams"
    );
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md")
}
