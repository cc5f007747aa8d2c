//! `config check`

use clap::ValueEnum;
use consign_automation::config::{ConfigProblem, SealCheck, Severity};
use consign_automation::program;
use serde_json::{Value, json};

use super::tree::{TreeArgs, as_json, shown};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Exit with 2 if there are warnings
    #[arg(long, visible_alias = "fail-on-warnings")]
    strict: bool,

    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
}

impl Args {
    pub(crate) fn wants_json(&self) -> bool {
        self.tree.output.json || self.format == Format::Json
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let json = self.wants_json();
        let tree = self.tree.find()?;
        let loaded = program::load(&tree.path, &tree.environment, SealCheck::AsConfigured);
        let of = |severity: Severity| {
            let problems = loaded.problems.iter();
            let chosen = problems.filter(|problem| problem.severity == severity);
            chosen.collect::<Vec<&ConfigProblem>>()
        };
        let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
        let notices = of(Severity::Notice);
        let valid = errors.is_empty();
        if json {
            let listed = |problems: &[&ConfigProblem]| -> Value {
                problems.iter().map(|problem| as_json(problem)).collect()
            };
            out::json(&json!({
                "valid": valid,
                "errors": listed(&errors),
                "warnings": listed(&warnings),
                "notices": listed(&notices),
                "integrity_failed": loaded.integrity_failed,
            }))?;
        } else {
            let shown_notices = if self.tree.verbose { &notices[..] } else { &[] };
            let kinds = [
                ("error", &errors[..]),
                ("warning", &warnings),
                ("notice", shown_notices),
            ];
            for (kind, problems) in kinds {
                for problem in problems {
                    out::note(&format!("{kind}: {}", shown(problem)));
                }
            }
            let word = if valid { "valid" } else { "not valid" };
            let errors = counted(errors.len(), "error");
            let warnings = counted(warnings.len(), "warning");
            out::data(&format!("{word}: {errors}, {warnings}"))?;
        }
        Ok(match (valid, warnings.is_empty()) {
            (false, _) => Exit::Failed,
            (true, false) if self.strict => Exit::Warnings,
            (true, _) => Exit::Done,
        })
    }
}

fn counted(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_many() {
        assert_eq!(counted(1, "error"), "1 error");
        assert_eq!(counted(0, "warning"), "0 warnings");
    }
}
