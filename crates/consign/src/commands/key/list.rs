//! `consign key list`

use consign_client::ApiKeyInfo;

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
        let keys = self.admin.client()?.keys().await?;
        if self.output.json {
            out::json(&keys)?;
        } else if keys.is_empty() {
            out::note("no keys except the main key");
        } else {
            out::data(&human(&keys))?;
        }
        Ok(Exit::Done)
    }
}

fn human(keys: &[ApiKeyInfo]) -> String {
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            vec![
                render::safe(&key.id),
                key.total_requests.to_string(),
                render::time(key.created_at),
                grants(key),
                render::safe(&key.owner),
            ]
        })
        .collect();
    render::table(&["ID", "REQUESTS", "CREATED", "GRANTS", "OWNER"], &rows)
}

fn grants(key: &ApiKeyInfo) -> String {
    if key.grants.is_empty() {
        return "-".to_owned();
    }
    render::safe(&key.grants.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_keys_is_a_table() {
        let json = r#"[{"id":"k1","owner":"a\u001bb","total_requests":12,"created_at":1700000000.25},
            {"id":"k2","owner":"b","total_requests":0,"created_at":1700000000,"grants":["beam.bob.acme","beam.al"]}]"#;
        let keys: Vec<ApiKeyInfo> = serde_json::from_str(json).unwrap();
        assert_eq!(
            human(&keys),
            "ID  REQUESTS  CREATED               GRANTS                 OWNER\n\
             k1  12        2023-11-14T22:13:20Z  -                      a\\u{1b}b\n\
             k2  0         2023-11-14T22:13:20Z  beam.bob.acme,beam.al  b\n"
        );
    }
}
