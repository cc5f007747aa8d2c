//! Empty databases for suites that are not written in Rust, on the cluster that the tests share.
//!
//! `test_postgres make NAME` prints the URL of a new one, `test_postgres drop NAME` removes it. The first call starts
//! the cluster; the caller that chose its folder stops it.

use std::io::{self, Write as _};

use consign_testkit::postgres;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [action, name] = words.as_slice() else {
        return Err(usage());
    };
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if name.is_empty() || !name.chars().all(|letter| plain(letter) || letter == '_') {
        return Err(usage());
    }
    let cluster = postgres::shared()?;
    match action.as_str() {
        "make" => {
            cluster.sql("postgres", &format!("CREATE DATABASE {name}"))?;
            writeln!(io::stdout(), "{}", cluster.url(name))
        }
        "drop" => {
            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            cluster.sql("postgres", &drop).map(|_| ())
        }
        _ => Err(usage()),
    }
}

fn usage() -> io::Error {
    io::Error::other("usage: test_postgres make|drop NAME, with a name of a-z, 0-9 and _")
}
