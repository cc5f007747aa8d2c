//! Confirmation of destructive commands.

use std::io::{BufRead, IsTerminal};

use crate::failure::Failure;
use crate::out;

/// Returns when the user agreed, by flag or by typing; without a terminal `--yes` is required.
pub(crate) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(
            Failure::usage("this needs a confirmation and there is no terminal")
                .hint("add --yes to go ahead, or --dry-run to see what would happen")
                .into(),
        );
    }
    out::ask(&format!("{question} [y/N]"));
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if agrees(&answer) {
        return Ok(());
    }
    Err(Failure::failed("not confirmed, nothing was changed").into())
}

fn agrees(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::agrees;

    #[test]
    fn only_a_clear_yes_counts() {
        for answer in ["y\n", "YES", " yes "] {
            assert!(agrees(answer), "{answer}");
        }
        for answer in ["", "\n", "n", "yeah", "yes please"] {
            assert!(!agrees(answer), "{answer}");
        }
    }
}
