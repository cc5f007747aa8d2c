//! `system skills` and `skills`: all commands and pipelines as Markdown, for people and models.

use std::fmt::Write as _;

use consign_automation::http::views::catalogue;
use consign_automation::program::Program;
use serde_json::Value;

use crate::commands::automation::request::{cell, get_or_load};
use crate::commands::automation::service_args::ServiceArgs;
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct SkillsArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl SkillsArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let known = |program: &Program| Ok(catalogue::skills(program));
        get_or_load(&self.service, "/skills", known, markdown)
    }
}

fn markdown(answer: &Value) -> String {
    let mut text = "# Skills\n".to_owned();
    for (kind, title) in [("plugin", "Plugins"), ("pipeline", "Pipelines")] {
        let skills = answer["skills"].as_array().into_iter().flatten();
        let mut skills = skills.filter(|skill| skill["kind"] == kind).peekable();
        if skills.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "\n## {title}\n");
        for skill in skills {
            let (name, tier) = (cell(&skill["name"]), cell(&skill["tier"]));
            let _ = write!(text, "- **{name}** ({tier})");
            if !skill["description"].is_null() {
                let _ = write!(text, ": {}", cell(&skill["description"]));
            }
            let _ = write!(text, "\n  - `{}`\n", cell(&skill["endpoint"]));
            if kind == "pipeline" {
                let (trigger, mode) = (cell(&skill["trigger"]), cell(&skill["execution_mode"]));
                let _ = writeln!(text, "  - started by `{trigger}`, {mode}");
            }
            for (key, word) in [("input_schema", "input"), ("output_schema", "output")] {
                if !skill[key].is_null() {
                    let _ = writeln!(text, "  - {word}: `{}`", cell(&skill[key]));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn skills_are_listed_by_kind_and_what_is_unknown_is_left_out() {
        let answer = json!({"skills": [
            {"name": "plugin.a.poll", "kind": "plugin", "tier": "READ", "endpoint": "POST /plugin/a/poll",
             "description": "Looks.", "input_schema": {"type": "object"}},
            {"name": "pipeline.p", "kind": "pipeline", "tier": "WRITE", "endpoint": "POST /pipeline/p",
             "trigger": "go", "execution_mode": "async"},
        ]});
        assert_eq!(
            markdown(&answer),
            "\
# Skills

## Plugins

- **plugin.a.poll** (READ): Looks.
  - `POST /plugin/a/poll`
  - input: `{\"type\":\"object\"}`

## Pipelines

- **pipeline.p** (WRITE)
  - `POST /pipeline/p`
  - started by `go`, async
"
        );
        assert_eq!(markdown(&json!({"skills": []})), "# Skills\n");
    }
}
