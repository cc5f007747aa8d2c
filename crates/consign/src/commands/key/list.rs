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
            let label = if key.name.is_empty() {
                &key.owner
            } else {
                &key.name
            };
            vec![
                render::safe(&key.id),
                render::safe(label),
                listed(&key.scopes, "-"),
                namespaces(key),
                key.rate.to_string(),
                key.total_requests.to_string(),
                day(Some(key.created_at)),
                key.last_used_at.map_or_else(dash, render::time),
                day(key.expires_at),
            ]
        })
        .collect();
    let heading = [
        "ID",
        "NAME",
        "SCOPES",
        "NAMESPACES",
        "RATE",
        "REQUESTS",
        "CREATED",
        "LAST USED",
        "EXPIRES",
    ];
    render::table(&heading, &rows)
}

fn listed(texts: &[String], otherwise: &str) -> String {
    if texts.is_empty() {
        otherwise.to_owned()
    } else {
        render::safe(&texts.join(","))
    }
}

/// Those of the settings, and the reserved ones of its grants.
fn namespaces(key: &ApiKeyInfo) -> String {
    let mut all = vec![listed(&key.namespaces, "all")];
    all.extend(key.grants.iter().map(|namespace| render::safe(namespace)));
    all.join(",")
}

fn dash() -> String {
    "-".to_owned()
}

/// The date alone, so that a row fits more terminals.
fn day(at: Option<f64>) -> String {
    let time = at.map_or_else(dash, render::time);
    time.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_keys_is_a_table() {
        let json = r#"[{"id":"k1","owner":"a\u001bb","total_requests":12,"created_at":1700000000.25,"scopes":["publish","read"],"rate":60},
            {"id":"k2","owner":"b","name":"mailer","total_requests":0,"created_at":1700000000,"scopes":["claim"],"rate":600,
             "namespaces":["mail*"],"grants":["beam.al"],"expires_at":1700086400.0,"last_used_at":1700000001.0}]"#;
        let keys: Vec<ApiKeyInfo> = serde_json::from_str(json).unwrap();
        assert_eq!(
            human(&keys),
            "ID  NAME      SCOPES        NAMESPACES     RATE  REQUESTS  CREATED     LAST USED             EXPIRES\n\
             k1  a\\u{1b}b  publish,read  all            60    12        2023-11-14  -                     -\n\
             k2  mailer    claim         mail*,beam.al  600   0         2023-11-14  2023-11-14T22:13:21Z  2023-11-15\n"
        );
    }
}
