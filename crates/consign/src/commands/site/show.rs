//! `consign site key show`

use consign_client::SiteKeyList;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::ServerArgs;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let keys = self.server.client()?.transactions().keys().await?;
        if self.output.json {
            out::data(&keys.text)?;
        } else {
            out::data(&human(&keys.body))?;
            let site = render::safe(&keys.body.site);
            out::note(&format!(
                "the keys of {site}; save them with --json > keys.json for: consign receipt verify"
            ));
        }
        Ok(Exit::Done)
    }
}

fn human(list: &SiteKeyList) -> String {
    let time = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), render::safe);
    let rows: Vec<Vec<String>> = list
        .keys
        .iter()
        .map(|key| {
            vec![
                render::safe(&key.key_id),
                render::safe(&key.status),
                time(&key.valid_from),
                time(&key.valid_until),
                render::safe(&key.public_key),
            ]
        })
        .collect();
    render::table(&["ID", "STATUS", "FROM", "UNTIL", "KEY"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_site_are_a_table() {
        let json = r#"{"site":"https://shop.example","keys":[{"key_id":"ELpo","public_key":"ed25519:0E","status":"current",
            "valid_from":"2026-05-25T12:00:00.000Z","valid_until":null}]}"#;
        assert_eq!(
            human(&serde_json::from_str(json).unwrap()),
            "ID    STATUS   FROM                      UNTIL  KEY\n\
             ELpo  current  2026-05-25T12:00:00.000Z  -      ed25519:0E\n"
        );
    }
}
