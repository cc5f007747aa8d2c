//! `consign tx create --purpose TEXT --action WORD`

use clap::builder::PossibleValuesParser;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_transactions::document::{AgentSigner, AtpDocument, REQUEST_BYTES_MAX};
use consign_transactions::instant;
use consign_transactions::intent::{ScopeAction, SignedIntent, TYPE};
use consign_transactions::money::Cents;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::agent::{AgentArgs, sign};
use super::agent_directory::{AgentDirectory, check_id, random_bytes};
use super::request::{WaitArgs, amount, now, send_with_retries, show_dry_run, site_of};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::{input, out, render};

const PATH: &str = "/api/atp/intents";
const LIFE_S_MAX: i64 = 7 * 24 * 60 * 60;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The purpose, in the user's words
    #[arg(long, value_name = "TEXT")]
    purpose: String,

    /// An allowed action; repeat for several
    #[arg(
        long = "action",
        value_name = "WORD",
        required = true,
        value_parser = PossibleValuesParser::new(ScopeAction::ALL.iter().map(|action| action.word())),
    )]
    actions: Vec<String>,

    /// An allowed domain: a host name; repeat for several
    #[arg(long = "domain", value_name = "HOST")]
    domains: Vec<String>,

    /// The amount of an execution, in the currency's smallest unit
    #[arg(long, value_name = "CENTS", value_parser = clap::value_parser!(u64).range(..=Cents::MAX.get()))]
    amount_cents: Option<u64>,

    /// The currency, by its three letters
    #[arg(long, value_name = "CODE", default_value = "EUR")]
    currency: String,

    /// The maximum for all executions together [default: the amount times the executions]
    #[arg(long, value_name = "CENTS", value_parser = clap::value_parser!(u64).range(..=Cents::MAX.get()))]
    max_spend_cents: Option<u64>,

    /// The number of allowed executions
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_executions: u16,

    /// Seconds until it expires, at most 604800 (seven days)
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(i64).range(1..=LIFE_S_MAX),
    )]
    expires_in: i64,

    /// The site of the intent; without it, the address named with --server, or the site of the data directory's
    /// server
    #[arg(long, value_name = "ORIGIN")]
    site: Option<String>,

    /// Its id; creating it again with the same id and content changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// The agent's own name
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,

    /// The user it acts for
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,

    /// Public key that must authorize it instead of the agent
    #[arg(long, value_name = "KEY")]
    principal_key: Option<String>,

    /// An intent that must be settled first; repeat for several
    #[arg(long = "after", value_name = "INTENT")]
    after: Vec<String>,

    /// Identifies the action, for sites that refuse duplicates
    #[arg(long, value_name = "TEXT")]
    action_dedup_key: Option<String>,

    /// The rail that moves the money, if the site has several
    #[arg(long, value_name = "NAME")]
    rail: Option<String>,

    /// The payment method at the rail
    #[arg(long, value_name = "ID", requires = "rail")]
    payment_method: Option<String>,

    /// Further data: a JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,

    /// Show the intent instead of signing and sending it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    patience: WaitArgs,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// Distinguishes intents with the same content.
struct IntentStamp {
    id: String,
    nonce: String,
    issued_at: Micros,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let state = self.agent.state()?;
        let stamp = self.stamp(&state)?;
        let site = site_of(self.site.as_ref(), &self.server).await?;
        let members = self.members(&stamp, &site)?;
        if self.dry_run {
            return show_dry_run(self.output, PATH, None, &members.to_string());
        }
        let signer = self.agent.signer_or_new()?;
        let (intent, text) = signed(&signer, members)?;
        save_intent(&state, &stamp.id, &text)?;
        let client = self.server.client()?;
        let until = self.patience.until(Some(intent.expires_at));
        let reply = send_with_retries(until, || client.transactions().create(&text)).await?;
        if self.output.json {
            out::data(&reply.text)?;
            return Ok(Exit::Done);
        }
        let id = render::safe(&reply.body.intent_id);
        out::data(&id)?;
        let cost = self.amount_cents.map_or_else(String::new, |cents| {
            format!(", for {}", amount(cents, &self.currency))
        });
        out::note(&format!(
            "{} until {}{cost}; consent to it with: consign tx authorize {id}",
            render::safe(&reply.body.state),
            render::safe(&reply.body.expires_at),
        ));
        Ok(Exit::Done)
    }

    /// The stamp of the intent that was signed here under the same id, so that the document comes out the same.
    fn stamp(&self, state: &AgentDirectory) -> anyhow::Result<IntentStamp> {
        let fresh = || -> anyhow::Result<String> { Ok(HEXLOWER.encode(&random_bytes::<16>()?)) };
        let id = match &self.id {
            Some(id) => id.clone(),
            None => format!("int_{}", fresh()?),
        };
        check_id("an intent", &id)?;
        Ok(match state.intent(&id)? {
            Some(kept) => IntentStamp {
                id,
                nonce: kept.nonce,
                issued_at: kept.issued_at,
            },
            None => IntentStamp {
                id,
                nonce: fresh()?,
                issued_at: now(),
            },
        })
    }

    /// The maximum for all executions together, stated explicitly, so that the authorizer need not compute it.
    fn max_spend(&self) -> Option<u64> {
        let each = self.amount_cents.and_then(Cents::new);
        let all = each.map(|each| each.times(self.max_executions).get());
        self.max_spend_cents.or(all.filter(|cents| *cents > 0))
    }

    fn members(&self, stamp: &IntentStamp, site: &str) -> anyhow::Result<Value> {
        let mut scope = json!({"actions": self.actions});
        if !self.domains.is_empty() {
            scope["domains"] = json!(self.domains);
        }
        let expires_at = stamp.issued_at.plus(self.expires_in * SECOND_US);
        let mut members = json!({
            "type": TYPE,
            "intent_id": stamp.id,
            "site": site,
            "purpose": self.purpose,
            "scope": scope,
            "currency": self.currency,
            "max_executions": self.max_executions,
            "nonce": stamp.nonce,
            "issued_at": instant::print(stamp.issued_at),
            "expires_at": instant::print(expires_at),
        });
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members[name] = value;
            }
        };
        add("amount_cents", self.amount_cents.map(Into::into));
        add("max_spend_cents", self.max_spend().map(Into::into));
        add("agent_id", self.agent_id.clone().map(Into::into));
        add("user_id", self.user_id.clone().map(Into::into));
        add("principal_key", self.principal_key.clone().map(Into::into));
        add(
            "action_dedup_key",
            self.action_dedup_key.clone().map(Into::into),
        );
        let conditions = self.after.iter();
        let conditions: Vec<_> = conditions
            .map(|id| json!({"intent_id": id, "state": "settled"}))
            .collect();
        add(
            "preconditions",
            (!conditions.is_empty()).then(|| conditions.into()),
        );
        let rail = self.rail.as_ref().map(|name| match &self.payment_method {
            Some(method) => json!({"name": name, "payment_method": method}),
            None => json!({"name": name}),
        });
        add("rail", rail);
        if let Some(metadata) = &self.metadata {
            let metadata = input::json("metadata", metadata)?;
            add("metadata", Some(serde_json::from_str(metadata.get())?));
        }
        Ok(members)
    }
}

/// The intent as it is sent, after all local checks.
fn signed(signer: &AgentSigner, mut members: Value) -> anyhow::Result<(SignedIntent, String)> {
    members["agent_key"] = signer.public().to_string().into();
    let text = sign(signer, &members)?;
    let intent = AtpDocument::read(text.as_bytes(), REQUEST_BYTES_MAX).and_then(SignedIntent::read);
    let intent = intent.map_err(|problem| Failure::usage(problem.to_string()))?;
    Ok((intent, text))
}

/// Stored before it is sent: authorize needs it later.
fn save_intent(state: &AgentDirectory, id: &str, text: &str) -> anyhow::Result<()> {
    if state.keep_intent(id, text)? == text {
        return Ok(());
    }
    let message = format!(
        "{} was signed here before, with other content",
        render::safe(id)
    );
    Err(Failure::usage(message)
        .hint("repeat it with the same arguments, or leave out --id for a new intent")
        .into())
}
