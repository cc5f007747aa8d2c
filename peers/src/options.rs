//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::load::Work;

/// Runs the same work on other queues and on ours, in turn, and prints the ratios.
#[derive(Debug, Parser)]
#[command(name = "consign-peers")]
pub(crate) struct Options {
    /// Only these, by name or first word; all by default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pub(crate) clients: Vec<usize>,

    /// Length of one round, after a second of warm-up.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,

    /// Rounds of each subject.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,

    /// pairs or cycle; a single client always cycles.
    #[arg(long, default_value = "pairs")]
    pub(crate) work: Work,

    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the report to this file too, as JSON.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,

    /// List the subjects and end.
    #[arg(long)]
    pub(crate) list: bool,

    /// Where servers keep their files while they run; it must be on a real disk.
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) dir: PathBuf,

    /// Lock this file during each round, so that other programs that lock it wait.
    #[arg(long)]
    pub(crate) lock: Option<PathBuf>,

    /// A subject that cannot be measured, and why: it is reported, and the run fails.
    #[arg(long, value_name = "NAME=REASON", value_parser = name_and_reason)]
    pub(crate) missing: Vec<(String, String)>,

    /// Our program.
    #[arg(long)]
    pub(crate) consign: PathBuf,

    /// The NATS server.
    #[arg(long)]
    pub(crate) nats: PathBuf,

    /// The folder of scripts, with the libraries they use.
    #[arg(long)]
    pub(crate) node: PathBuf,
}

fn name_and_reason(text: &str) -> Result<(String, String), String> {
    let (name, reason) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is not NAME=REASON"))?;
    Ok((name.to_owned(), reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_separated_by_commas() {
        let line = "consign-peers --only redis,nats --clients 1,64 --missing nats=no=net --consign a --nats b --node c";
        let options = Options::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(options.only, ["redis", "nats"]);
        assert_eq!(options.clients, [1, 64]);
        assert_eq!(options.missing, [("nats".to_owned(), "no=net".to_owned())]);
    }
}
