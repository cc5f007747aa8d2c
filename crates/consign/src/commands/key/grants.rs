//! `consign key grants`

use consign_client::KeyGrant;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let grants = self.admin.client()?.grants().await?;
        if self.output.json {
            out::json(&grants)?;
        } else if grants.is_empty() {
            out::note("no key has a grant");
        } else {
            out::data(&human(&grants))?;
        }
        Ok(Exit::Done)
    }
}

fn human(grants: &[KeyGrant]) -> String {
    let rows: Vec<Vec<String>> = grants
        .iter()
        .map(|grant| {
            vec![
                render::safe(&grant.namespace),
                render::safe(&grant.key_id),
                render::time(grant.granted_at),
            ]
        })
        .collect();
    render::table(&["NAMESPACE", "KEY", "SINCE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_grants_is_a_table() {
        let grant = KeyGrant {
            key_id: "main".to_owned(),
            namespace: "beam.bob".to_owned(),
            granted_at: 1_700_000_000.25,
        };
        assert_eq!(
            human(&[grant]),
            "NAMESPACE  KEY   SINCE\nbeam.bob   main  2023-11-14T22:13:20Z\n"
        );
    }
}
