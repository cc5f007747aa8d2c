//! `consign intent publish GOAL JSON`

use clap::ValueEnum;
use consign_client::Publish;
use consign_kernel::json::compact;
use consign_kernel::limits::{
    ATTEMPTS_MAX, BACKOFF_BASE_MAX_S, BACKOFF_BASE_MIN_S, GOAL_CHARS_MAX, JSON_DEPTH_MAX,
    LABEL_CHARS_MAX, NAMESPACE_CHARS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::duration_arg::DurationArg;
use crate::failure::{Exit, Failure};
use crate::link::LinkArgs;
use crate::{input, out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    intent: IntentArgs,

    /// A second publish with the same key returns the same intent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Check the request and print it instead of sending it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

/// An intent to publish, through its server or through a daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct IntentArgs {
    /// Kind of work; workers claim by it
    goal: String,

    /// Data for the worker: JSON, @FILE, or - for standard input
    #[arg(value_name = "JSON")]
    payload: String,

    /// Namespace [server default: default]
    #[arg(long, short)]
    namespace: Option<String>,

    /// Who may claim it [server default: private]
    #[arg(long, value_enum)]
    visibility: Option<Visibility>,

    /// 0 to 1000, higher is claimed first [server default: 100]
    #[arg(long)]
    priority: Option<u32>,

    /// Time before it may be claimed, like 30s or 2h [server default: 0]
    #[arg(long, value_name = "TIME")]
    delay: Option<DurationArg>,

    /// Attempts before it becomes a dead letter, 1 to 20 [server default: 3]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// Seconds of back-off, 1 to 3600: twice as many pass before the second try, the double of that before each further
    /// one, and up to 2 s more [server default: 5]
    #[arg(long, value_name = "SECONDS")]
    backoff_base: Option<f64>,

    /// Only the worker with this id may claim it
    #[arg(long, value_name = "ID")]
    target_worker: Option<String>,

    /// Only workers with this capability may claim it
    #[arg(long, value_name = "WORD")]
    required_capability: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Visibility {
    /// Only holders of the same key
    Private,
    /// Every key of the server, in the same namespace
    Public,
}

#[derive(Serialize)]
struct PublishPreview<'a> {
    method: &'static str,
    path: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    body: &'a Publish,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let publish = self.intent.request()?;
        if self.dry_run {
            return self.show(&publish);
        }
        let key = self.idempotency_key.as_deref();
        let published = self.link.client()?.publish(&publish, key).await?;
        if self.output.json {
            out::json(&published)?;
        } else {
            out::data(&published.id)?;
            out::note(&format!(
                "published in namespace {}",
                render::safe(&published.namespace)
            ));
        }
        Ok(Exit::Done)
    }

    fn show(&self, publish: &Publish) -> anyhow::Result<Exit> {
        let request = PublishPreview {
            method: "POST",
            path: "/intent",
            idempotency_key: self.idempotency_key.as_deref(),
            body: publish,
        };
        if self.output.json {
            out::json(&request)?;
        } else {
            out::data(&format!("{} {}", request.method, request.path))?;
            if let Some(key) = request.idempotency_key {
                out::data(&format!("idempotency-key: {}", render::safe(key)))?;
            }
            out::data(&render::safe(&serde_json::to_string(publish)?))?;
            out::note("nothing was sent");
        }
        Ok(Exit::Done)
    }
}

impl IntentArgs {
    /// The request, checked as far as it can be without its server.
    pub(crate) fn request(&self) -> anyhow::Result<Publish> {
        let publish = Publish {
            goal: self.goal.clone(),
            payload: input::json("payload", &self.payload)?,
            namespace: self.namespace.clone(),
            visibility: self.visibility.map(|visibility| match visibility {
                Visibility::Private => "private".to_owned(),
                Visibility::Public => "public".to_owned(),
            }),
            priority: self.priority,
            delay: self.delay.map(|delay| delay.get().as_secs_f64()),
            max_attempts: self.max_attempts,
            backoff_base: self.backoff_base,
            target_worker: self.target_worker.clone(),
            required_capability: self.required_capability.clone(),
        };
        check(&publish)?;
        Ok(publish)
    }
}

/// Checks before sending what the server would refuse or silently change.
fn check(publish: &Publish) -> Result<(), Failure> {
    let refuse = |what: String| Err(Failure::usage(what));
    let goal_chars = publish.goal.trim().chars().count();
    if goal_chars == 0 || goal_chars > GOAL_CHARS_MAX {
        return refuse(format!("goal must have 1 to {GOAL_CHARS_MAX} characters"));
    }
    // The server counts the payload without the white space between its tokens.
    let payload_bytes = match compact(publish.payload.get().as_bytes(), JSON_DEPTH_MAX) {
        Ok(payload) => payload.len(),
        Err(defect) => return refuse(format!("payload cannot be used: {defect}")),
    };
    if payload_bytes > PAYLOAD_BYTES_MAX {
        let message =
            format!("payload has {payload_bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}");
        return Err(Failure::usage(message).hint("keep large data elsewhere and send a reference"));
    }
    let word = |text: &Option<String>, extra: &str, max: usize| {
        text.as_ref().is_none_or(|text| {
            let allowed =
                |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c) || extra.contains(c);
            (1..=max).contains(&text.len()) && text.chars().all(allowed)
        })
    };
    if !word(&publish.namespace, "", NAMESPACE_CHARS_MAX) {
        return refuse(format!(
            "namespace must be 1 to {NAMESPACE_CHARS_MAX} of the characters A-Z a-z 0-9 . _ -"
        ));
    }
    for (name, label) in [
        ("target worker", &publish.target_worker),
        ("required capability", &publish.required_capability),
    ] {
        if !word(label, ":", LABEL_CHARS_MAX) {
            return refuse(format!(
                "{name} must be 1 to {LABEL_CHARS_MAX} of the characters A-Z a-z 0-9 . _ - :"
            ));
        }
    }
    if publish
        .priority
        .is_some_and(|priority| i64::from(priority) > PRIORITY_MAX)
    {
        return refuse(format!("priority must be 0 to {PRIORITY_MAX}"));
    }
    if publish
        .max_attempts
        .is_some_and(|attempts| !(1..=ATTEMPTS_MAX).contains(&attempts))
    {
        return refuse(format!("max attempts must be 1 to {ATTEMPTS_MAX}"));
    }
    let backoff_range = BACKOFF_BASE_MIN_S..=BACKOFF_BASE_MAX_S;
    if publish
        .backoff_base
        .is_some_and(|base| !backoff_range.contains(&base))
    {
        return refuse(format!(
            "backoff base must be {BACKOFF_BASE_MIN_S} to {BACKOFF_BASE_MAX_S} seconds"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn refusal(change: impl FnOnce(&mut Publish)) -> Option<String> {
        let mut publish = Publish::new("send", &serde_json::json!({"to": "me"})).unwrap();
        change(&mut publish);
        check(&publish).err().map(|failure| failure.to_string())
    }

    #[test]
    fn what_the_server_would_refuse_is_refused_before_sending() {
        assert_eq!(refusal(|_| {}), None);
        assert_eq!(
            refusal(|publish| publish.goal = "  ".to_owned()).unwrap(),
            "goal must have 1 to 256 characters"
        );
        assert_eq!(refusal(|publish| publish.priority = Some(1000)), None);
        assert_eq!(
            refusal(|publish| publish.priority = Some(1001)).unwrap(),
            "priority must be 0 to 1000"
        );
        assert!(refusal(|publish| publish.max_attempts = Some(0)).is_some());
        assert!(refusal(|publish| publish.backoff_base = Some(0.5)).is_some());
        assert!(refusal(|publish| publish.namespace = Some("a/b".to_owned())).is_some());
        assert_eq!(
            refusal(|publish| publish.target_worker = Some("a:b".to_owned())),
            None
        );
    }

    #[test]
    fn white_space_between_tokens_does_not_count() {
        let padding = " ".repeat(PAYLOAD_BYTES_MAX);
        let loose = RawValue::from_string(format!("[1,{padding}2]")).unwrap();
        assert_eq!(refusal(|publish| publish.payload = loose), None);
        let large = RawValue::from_string(format!("\"{padding}\"")).unwrap();
        let error = refusal(|publish| publish.payload = large).unwrap();
        assert_eq!(error, "payload has 7170 bytes, the limit is 7168");
    }
}
