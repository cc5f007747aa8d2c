//! `consign daemon inbox`

use consign_client::percent_encode;
use consign_mesh::ipc::path;

use super::{DaemonSelector, columns};
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(super) struct InboxArgs {
    /// Only messages received at this time or later, such as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Only messages of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,

    /// Only messages of this sender, by key or name
    #[arg(long, value_name = "SENDER")]
    from: Option<String>,

    /// The number of messages, at most 1000
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

impl InboxArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let limit = self.limit.map(|limit| limit.to_string());
        let path = with_query(
            path::INBOX,
            &[
                ("since", self.since.as_deref()),
                ("topic", self.topic.as_deref()),
                ("from", self.from.as_deref()),
                ("limit", limit.as_deref()),
            ],
        );
        let answer = target.link()?.get(&path).await?;
        target.print(&answer, |answer| {
            columns(
                answer,
                "items",
                &["RECEIVED", "FROM", "TOPIC", "MESSAGE"],
                &["received_at", "sender_name", "topic", "body"],
            )
        })
    }
}

/// A path with the parameters that have a value.
pub(super) fn with_query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut whole = path.to_owned();
    for (name, value) in pairs {
        if let Some(value) = value {
            whole.push(if whole.contains('?') { '&' } else { '?' });
            whole.push_str(name);
            whole.push('=');
            whole.push_str(&percent_encode(value.as_bytes()));
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::with_query;

    #[test]
    fn only_given_parameters_are_sent_and_each_is_encoded() {
        assert_eq!(with_query("/v1/inbox", &[("from", None)]), "/v1/inbox");
        let pairs = [
            ("topic", Some("#a&b")),
            ("from", None),
            ("limit", Some("5")),
        ];
        assert_eq!(with_query("/x", &pairs), "/x?topic=%23a%26b&limit=5");
    }
}
