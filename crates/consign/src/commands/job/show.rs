//! `job show`, `job tree` and `job inspect`

use serde_json::json;

use super::logs::entry;
use crate::commands::automation::ask::{JOB_COLUMNS, ask, block_on, members, print, rows};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;
use crate::system::{Alone, Reach, query, segment};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the job
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl ShowArgs {
    pub(crate) fn show(self) -> anyhow::Result<Exit> {
        ask(&self.tree, &format!("/job/{}", segment(&self.id)), members)
    }

    pub(crate) fn tree(self) -> anyhow::Result<Exit> {
        let path = format!("/job/{}/tree", segment(&self.id));
        ask(&self.tree, &path, |tree| rows(tree, JOB_COLUMNS))
    }

    pub(crate) fn inspect(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let id = segment(&self.id);
        let logs = query(&[
            ("job_id", Some(self.id.clone())),
            ("include_result", Some("true".to_owned())),
        ]);
        let whole = block_on(async {
            let reach = Reach::new(&tree, Alone::Look).await?;
            let answers = async {
                let job = reach.get(&format!("/job/{id}")).await?.body;
                let mut attempts = reach.get(&format!("/job-logs{logs}")).await?.body;
                let lineage = reach.get(&format!("/job/{id}/tree")).await?.body;
                let attempts = attempts["logs"].take();
                anyhow::Ok(json!({"job": job, "attempts": attempts, "tree": lineage}))
            };
            let answers = answers.await;
            reach.close().await?;
            answers
        })?;
        print(&self.tree, &whole, |whole| {
            let attempts = whole["attempts"].as_array().into_iter().flatten();
            let attempts: String = attempts.map(entry).collect();
            let tree = rows(&whole["tree"], JOB_COLUMNS);
            format!("{}\n{attempts}\n{tree}", members(&whole["job"]))
        })
    }
}
