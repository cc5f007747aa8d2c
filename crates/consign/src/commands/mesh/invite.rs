//! `consign mesh invite SLUG`

use clap::value_parser;
use consign_mesh::limits::INVITE_USES_MAX;
use serde_json::json;

use super::OperatorArgs;
use crate::commands::beam::cell;
use crate::failure::{Exit, Failure};
use crate::out;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The link contains the root key of the mesh: hand it out as a secret.

Example:
  consign mesh invite acme --uses 5 --expires 7d")]
pub(crate) struct Args {
    /// Short name of the mesh
    slug: String,

    /// How many members may join with it
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = value_parser!(u32).range(1..=i64::from(INVITE_USES_MAX)),
    )]
    uses: Option<u32>,

    /// How long it is valid, such as 90s, 10m, 12h or 7d; default is 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    expires: Option<u64>,

    /// Role of those who join: member or admin
    #[arg(long, value_name = "ROLE", default_value = "member", value_parser = ["member", "admin"])]
    role: String,

    #[command(flatten)]
    operator: OperatorArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let mut invite = json!({"role": self.role});
        if let Some(uses) = self.uses {
            invite["uses"] = uses.into();
        }
        if let Some(seconds) = self.expires {
            invite["valid_for_s"] = seconds.into();
        }
        let client = self.operator.admin.client()?;
        let created = client.mesh_invite(&self.slug, &invite).await?;
        self.operator.print(&created, |created| {
            out::data(&cell(created, "link"))?;
            out::note("this link is a secret and is shown only now; use it with: consign mesh join LINK --name NAME");
            Ok(())
        })
    }
}

/// A number and a unit: `s`, `m`, `h` or `d`.
fn seconds(text: &str) -> Result<u64, Failure> {
    let invalid = || Failure::usage("write a number and a unit, such as 90s, 10m, 12h or 7d");
    let unit = text.chars().last().ok_or_else(invalid)?;
    let seconds_per_unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(invalid()),
    };
    let number = text
        .strip_suffix(unit)
        .and_then(|number| number.parse::<u64>().ok());
    let seconds = number.and_then(|number| number.checked_mul(seconds_per_unit));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, expected) in [("1s", 1), ("10m", 600), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(seconds(text).ok(), Some(expected), "{text}");
        }
        for text in [
            "",
            "s",
            "0s",
            "7",
            "1w",
            "-1s",
            "1.5h",
            "1ss",
            "99999999999999999d",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
