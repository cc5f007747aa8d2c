//! Agent transactions beside the Intent Protocol: the site that the variables ask for, on the same ledger.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use consign_engine::Engine;
use consign_faces::intent::AdditionalKeys;
use consign_faces::intent::settings::IntentSettings;
use consign_faces::transaction::settings::{self, Settings, Unusable};
use consign_faces::transaction::{self, Names, Tokens};
use consign_faces::web::credentials::SecretDigest;
use consign_faces::web::secret_text::SecretText;
use consign_transactions::callback;
use consign_transactions::document::PublicKey;
use consign_transactions::rail::{
    Http, Null, Rail, Setup, Stripe, Worker, WorkerOptions, http, standard, stripe,
};
use consign_transactions::site::{AgentKeys, Options, Site, Swept};
use tokio::sync::mpsc;

use super::ledger::random_bytes;
use super::site_file::SiteFile;
use crate::failure::Failure;
use crate::planted;
use crate::secrets::Secrets;

/// A worker's news that may wait; what is dropped beyond them is found by the sweep.
const NEWS_MAX: usize = 1_024;
/// Effects that outlast their requests and are watched all the same; the sweep finds the others.
const WATCHED_MAX: usize = 64;
const WORKER_GOAL: &str = "atp.effect";
/// A call of the rail comes back while the transaction is still held by whoever made it.
const WORKER_WAIT_MAX: Duration = Duration::from_secs(30);
/// A rail's call comes back before the request that waits for it.
const MARGIN: Duration = Duration::from_millis(500);

/// The environment counts for more than the file.
pub(super) fn settings(file: Option<&Path>) -> anyhow::Result<Option<Settings>> {
    let file = file.map(SiteFile::read).transpose()?.unwrap_or_default();
    let settings = Settings::read(|name| std::env::var(name).ok().or_else(|| file.get(name)));
    let refused = |unusable: Unusable| Failure::usage(unusable.to_string()).hint(unusable.advice);
    Ok(settings.map_err(refused)?)
}

/// A site whose transactions are looked after.
pub(super) struct Open {
    site: Site,
    names: Names,
    public_per_minute: u32,
    writes_per_minute: u32,
    write_bytes_per_minute: u32,
    compat_secret: Option<SecretText>,
}

/// Nobody else that runs on the ledger is called `node`: what is held under this name was left behind.
pub(super) async fn open(engine: Engine, asked: Settings, node: String) -> anyhow::Result<Open> {
    if let Some(why) = open_door(&asked) {
        tracing::warn!(
            "{why} on a rail that moves real money; \
             name the agents with ATP_AGENT_KEYS=registered and ATP_REGISTERED_KEYS, and leave ATP_SIGNED_REQUESTS=false out"
        );
    }
    let (news, heard) = mpsc::channel(NEWS_MAX);
    let rail = rail(&engine, &asked, news)?;
    let names = Names::new(&asked.site, &asked.hosts);
    let mut options = Options::new(asked.site, rail);
    options.agent_keys = match asked.agent_keys {
        settings::AgentKeys::Open => AgentKeys::Open,
        settings::AgentKeys::Registered(keys) => registered(&keys)?,
    };
    options.node = node;
    options.start = format!("{:016x}", u64::from_le_bytes(random_bytes()?));
    options.lease = planted::site_lease()?.unwrap_or(options.lease);
    options.sweep = asked.sweep;
    options.execute_wait = asked.execute_wait;
    options.settle_delay = asked.settle_delay;
    options.dedup_window_s = asked.dedup_window_s;
    options.signed_requests = asked.signed_requests;
    options.open_per_key = asked.open_per_key.into();
    options.open_max = asked.open_max.into();
    let site = Site::open(engine, options).await?;
    let recovered = site.recover().await?;
    if recovered > 0 {
        tracing::info!(
            recovered,
            "transactions of an earlier start are looked at again"
        );
    }
    tokio::spawn(looked_at(site.clone()));
    tokio::spawn(site.clone().sweep_for_ever());
    tokio::spawn(site.clone().follow_keys());
    tokio::spawn(listen(site.clone(), heard));
    Ok(Open {
        site,
        names,
        public_per_minute: asked.public_per_minute,
        writes_per_minute: asked.writes_per_minute,
        write_bytes_per_minute: asked.write_bytes_per_minute,
        compat_secret: asked.compat_secret,
    })
}

/// Whatever was open when the last start ended is looked at first, though its time may not have come: what kept it open may
/// be what was mended.
async fn looked_at(site: Site) {
    match site.reconcile().await {
        Ok(swept) if swept.looked_at > 0 => {
            let Swept {
                looked_at,
                settled,
                compensated,
                open,
            } = swept;
            tracing::info!(looked_at, settled, compensated, open, "open transactions");
        }
        Ok(_) => {}
        Err(problem) => tracing::warn!(%problem, "open transactions are looked at later"),
    }
}

/// Who may move real money without having shown that they may.
fn open_door(asked: &Settings) -> Option<&'static str> {
    let unknown_agents = asked.agent_keys == settings::AgentKeys::Open;
    let anybody = match asked.rail {
        settings::Rail::Null => return None,
        settings::Rail::Stripe | settings::Rail::Http => unknown_agents,
        // What a worker does may be worth nothing, but it is worth a signature.
        settings::Rail::Worker => unknown_agents && !asked.signed_requests,
    };
    match (anybody, asked.signed_requests) {
        (true, false) => Some(
            "agents with any key of their own may spend, and whoever knows an intent's id may execute, refund or cancel it,",
        ),
        (true, true) => Some("agents with any key of their own may spend"),
        (false, false) => Some("whoever knows an intent's id may execute, refund or cancel it"),
        (false, true) => None,
    }
}

fn rail(
    engine: &Engine,
    asked: &Settings,
    news: mpsc::Sender<String>,
) -> Result<Arc<dyn Rail>, Failure> {
    match asked.rail {
        settings::Rail::Null => Ok(Arc::new(Null)),
        settings::Rail::Worker => {
            let goal = asked.worker_goal.clone();
            let options = WorkerOptions {
                goal: goal.unwrap_or_else(|| WORKER_GOAL.to_owned()),
                wait: asked
                    .execute_wait
                    .saturating_sub(MARGIN)
                    .min(WORKER_WAIT_MAX),
                news,
                watched_max: WATCHED_MAX,
            };
            Ok(Arc::new(Worker::new(engine.clone(), options)))
        }
        settings::Rail::Stripe => {
            let secret = asked.stripe_secret.as_ref().ok_or_else(|| {
                Failure::usage("ATP_STRIPE_SECRET is not set")
                    .hint("the rail stripe needs the secret key of the account")
            })?;
            let webhooks = asked.stripe_webhook_secrets.iter();
            let options = stripe::Options {
                base: asked
                    .stripe_base
                    .clone()
                    .unwrap_or_else(|| stripe::BASE.to_owned()),
                secret: secret.reveal().to_owned(),
                webhook_secrets: callback::Secrets::new(
                    webhooks.map(|one| one.reveal().to_owned()),
                ),
                timeout: asked.rail_timeout,
            };
            let rail = Stripe::new(options).map_err(|error| unusable("ATP_STRIPE_BASE", &error))?;
            Ok(Arc::new(rail))
        }
        settings::Rail::Http => {
            let base = asked.http_base.clone().ok_or_else(|| {
                Failure::usage("ATP_HTTP_BASE is not set")
                    .hint("the rail http needs the address of the site's own endpoint")
            })?;
            let secrets = asked
                .http_secret
                .iter()
                .flat_map(|both| both.reveal().split(','));
            let secrets = standard::Secrets::new(secrets.map(str::trim))
                .map_err(|error| unusable("ATP_HTTP_SECRET", &error))?;
            let options = http::Options {
                base,
                secrets,
                timeout: asked.rail_timeout,
            };
            let rail = Http::new(options).map_err(|error| unusable("ATP_HTTP_BASE", &error))?;
            Ok(Arc::new(rail))
        }
    }
}

fn unusable(name: &str, error: &Setup) -> Failure {
    Failure::usage(format!("{name}: {error}"))
        .hint("docs/protocols/transactions-rails.md tells what the rails need")
}

fn registered(keys: &[String]) -> Result<AgentKeys, Failure> {
    let id = |text: &String| {
        let key = PublicKey::parse(text).ok_or_else(|| {
            Failure::usage(format!(
                "ATP_REGISTERED_KEYS has {text}, which is no public key"
            ))
            .hint("write each like ed25519: and the base64 of its 32 bytes")
        });
        key.map(|key| key.id().to_owned())
    };
    keys.iter()
        .map(id)
        .collect::<Result<_, _>>()
        .map(AgentKeys::Registered)
}

/// Looks at what has news, as soon as it has.
async fn listen(site: Site, mut heard: mpsc::Receiver<String>) {
    while let Some(reference) = heard.recv().await {
        if let Err(problem) = site.look_again(&reference).await {
            tracing::warn!(%problem, "a transaction with news waits for the next sweep");
        }
    }
}

impl Open {
    pub(super) fn keys(&self) -> AdditionalKeys {
        let site = self.site.clone();
        AdditionalKeys(Arc::new(move || site.jwks()))
    }

    pub(super) fn router(&self, settings: &IntentSettings, secrets: &Secrets) -> Router {
        let options = transaction::Options {
            admin_secret: Some(SecretDigest::new(secrets.admin_secret.reveal().to_owned())),
            policy: settings.policy(),
            names: self.names.clone(),
            public_per_minute: self.public_per_minute,
            writes_per_minute: self.writes_per_minute,
            write_bytes_per_minute: self.write_bytes_per_minute,
            compat: self.compat_secret.clone().map(Tokens::new),
        };
        transaction::router(self.site.clone(), options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_rail_is_open_unless_agents_are_named_and_requests_signed() {
        let open = |variables: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let site = ("ATP_SITE", "https://shop.example");
                let mut all = variables.iter().chain([&site]);
                let found = all.find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            open_door(&Settings::read(lookup).unwrap().unwrap()).is_some()
        };
        for rail in ["stripe", "http"] {
            let rail = ("ATP_RAIL", rail);
            assert!(open(&[rail]));
            assert!(open(&[rail, ("ATP_AGENT_KEYS", "open")]));
            let signed = ("ATP_SIGNED_REQUESTS", "true");
            let unsigned = ("ATP_SIGNED_REQUESTS", "false");
            assert!(open(&[rail, signed]));
            let registered = ("ATP_AGENT_KEYS", "registered");
            let keys = ("ATP_REGISTERED_KEYS", "ed25519:x");
            assert!(open(&[rail, registered, keys, unsigned]));
            assert!(!open(&[rail, registered, keys]));
            assert!(!open(&[rail, registered, keys, signed]));
        }
        let unsigned = ("ATP_SIGNED_REQUESTS", "false");
        assert!(!open(&[("ATP_RAIL", "worker")]));
        assert!(open(&[("ATP_RAIL", "worker"), unsigned]));
        assert!(!open(&[("ATP_RAIL", "null"), unsigned]));
    }
}
