//! Agent transactions beside the Intent Protocol: opens the configured site on the same ledger.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::Engine;
use consign_intent::settings::IntentSettings;
use consign_transactions::callback;
use consign_transactions::http::{SiteHosts, SiteMount, UserTokens};
use consign_transactions::rail::{
    HttpRail, NullRail, Rail, RailSetupError, StripeRail, WorkerOptions, WorkerRail, http,
    standard_webhooks, stripe,
};
use consign_transactions::site::{AgentKeys, Options, Site, SweepCounts};
use consign_web::credentials::SecretDigest;
use consign_web::secret_text::SecretText;
use tokio::sync::mpsc;

use super::ledger::random_bytes;
use super::prepare::{Prepared, StartedLedger};
use super::site_file::SiteFile;
use super::site_settings::{RailSetting, SiteSettings};
use crate::failure::Failure;
use crate::planted;
use crate::secrets::Secrets;
use crate::system::NODE;

/// Queued notifications of the worker rail; the sweep finds transactions whose notification was dropped.
const CHANGES_MAX: usize = 1_024;
/// Effects that are watched after their request has ended; the sweep finds the others.
const WATCHED_MAX: usize = 64;
const WORKER_GOAL: &str = "atp.effect";
/// A rail call must return while its driver still holds the lease.
const WORKER_WAIT_MAX: Duration = Duration::from_secs(30);
/// A rail call must return before the request that waits for it.
const MARGIN: Duration = Duration::from_millis(500);

/// Environment variables take precedence over the file.
pub(super) fn settings(file: Option<&Path>) -> anyhow::Result<Option<SiteSettings>> {
    let file = file.map(SiteFile::read).transpose()?.unwrap_or_default();
    let settings = SiteSettings::read(|name| std::env::var(name).ok().or_else(|| file.get(name)));
    Ok(settings.map_err(Failure::from)?)
}

/// An open site with its background tasks.
pub(super) struct OpenSite {
    site: Site,
    names: SiteHosts,
    public_per_minute: u32,
    writes_per_minute: u32,
    write_bytes_per_minute: u32,
    compat_secret: Option<SecretText>,
}

/// Opens the site, if one is configured. Its tasks end with the process: the next start recovers what they leave.
pub(super) async fn open_if_asked(
    asked: Option<SiteSettings>,
    prepared: &Prepared,
    ledger: &StartedLedger,
) -> anyhow::Result<Option<OpenSite>> {
    let Some(asked) = asked else {
        return Ok(None);
    };
    // A file has one server at a time, so earlier leases belong to this node.
    let node = if ledger.shared {
        prepared.data.node_id(&prepared.lock)?
    } else {
        NODE.to_owned()
    };
    Ok(Some(open(ledger.engine.clone(), asked, node).await?))
}

/// `node` must be unique on the ledger: leases under this name are left over from an earlier start.
async fn open(engine: Engine, asked: SiteSettings, node: String) -> anyhow::Result<OpenSite> {
    if let Some(why) = open_access_warning(&asked) {
        tracing::warn!(
            "{why} on a rail that moves real money; \
             name the agents with ATP_AGENT_KEYS=registered and ATP_REGISTERED_KEYS, and leave ATP_SIGNED_REQUESTS=false out"
        );
    }
    let (changes, changed) = mpsc::channel(CHANGES_MAX);
    let rail = rail(&engine, &asked, changes)?;
    let names = SiteHosts::new(&asked.site, &asked.hosts);
    let mut options = Options::new(asked.site, rail);
    options.agent_keys = asked.agent_keys;
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
        tracing::info!(recovered, "recovered transactions of an earlier start");
    }
    tokio::spawn(reconcile_open(site.clone()));
    tokio::spawn(site.clone().sweep_forever());
    tokio::spawn(site.clone().follow_keys());
    tokio::spawn(recheck_changed(site.clone(), changed));
    Ok(OpenSite {
        site,
        names,
        public_per_minute: asked.public_per_minute,
        writes_per_minute: asked.writes_per_minute,
        write_bytes_per_minute: asked.write_bytes_per_minute,
        compat_secret: asked.compat_secret,
    })
}

/// Checks transactions that were open at the last shutdown first, even if they are not due: the cause may have been fixed
/// in between.
async fn reconcile_open(site: Site) {
    match site.reconcile().await {
        Ok(swept) if swept.looked_at > 0 => {
            let SweepCounts {
                looked_at,
                settled,
                compensated,
                open,
            } = swept;
            tracing::info!(looked_at, settled, compensated, open, "open transactions");
        }
        Ok(_) => {}
        Err(problem) => tracing::warn!(%problem, "open transactions will be checked later"),
    }
}

/// Describes who can move real money without authentication.
fn open_access_warning(asked: &SiteSettings) -> Option<&'static str> {
    let unknown_agents = asked.agent_keys == AgentKeys::Open;
    let unauthenticated = match asked.rail {
        RailSetting::Null => return None,
        RailSetting::Stripe | RailSetting::Http => unknown_agents,
        // The effect of a worker may be harmless, but the request must at least be signed.
        RailSetting::Worker => unknown_agents && !asked.signed_requests,
    };
    match (unauthenticated, asked.signed_requests) {
        (true, false) => Some(
            "any agent key may spend, and anyone who knows an intent's id may execute, refund or cancel it,",
        ),
        (true, true) => Some("any agent key may spend"),
        (false, false) => Some("anyone who knows an intent's id may execute, refund or cancel it"),
        (false, true) => None,
    }
}

fn rail(
    engine: &Engine,
    asked: &SiteSettings,
    changes: mpsc::Sender<String>,
) -> Result<Arc<dyn Rail>, Failure> {
    match asked.rail {
        RailSetting::Null => Ok(Arc::new(NullRail)),
        RailSetting::Worker => {
            let goal = asked.worker_goal.clone();
            let options = WorkerOptions {
                goal: goal.unwrap_or_else(|| WORKER_GOAL.to_owned()),
                wait: asked
                    .execute_wait
                    .saturating_sub(MARGIN)
                    .min(WORKER_WAIT_MAX),
                changes,
                watched_max: WATCHED_MAX,
            };
            Ok(Arc::new(WorkerRail::new(engine.clone(), options)))
        }
        RailSetting::Stripe => {
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
                webhook_secrets: callback::StripeSecrets::new(
                    webhooks.map(|one| one.reveal().to_owned()),
                ),
                timeout: asked.rail_timeout,
            };
            let rail =
                StripeRail::new(options).map_err(|error| unusable("ATP_STRIPE_BASE", &error))?;
            Ok(Arc::new(rail))
        }
        RailSetting::Http => {
            let base = asked.http_base.clone().ok_or_else(|| {
                Failure::usage("ATP_HTTP_BASE is not set")
                    .hint("the rail http needs the address of the site's own endpoint")
            })?;
            let secrets = asked
                .http_secret
                .iter()
                .flat_map(|both| both.reveal().split(','));
            let secrets = standard_webhooks::WebhookSecrets::new(secrets.map(str::trim))
                .map_err(|error| unusable("ATP_HTTP_SECRET", &error))?;
            let options = http::Options {
                base,
                secrets,
                timeout: asked.rail_timeout,
            };
            let rail = HttpRail::new(options).map_err(|error| unusable("ATP_HTTP_BASE", &error))?;
            Ok(Arc::new(rail))
        }
    }
}

fn unusable(name: &str, error: &RailSetupError) -> Failure {
    Failure::usage(format!("{name}: {error}"))
        .hint("see docs/protocols/transactions-rails.md for the settings of the rails")
}

/// Checks transactions as soon as their notification arrives.
async fn recheck_changed(site: Site, mut changed: mpsc::Receiver<String>) {
    while let Some(reference) = changed.recv().await {
        if let Err(problem) = site.recheck(&reference).await {
            tracing::warn!(%problem, "a changed transaction will be checked by the next sweep");
        }
    }
}

impl OpenSite {
    pub(super) fn mount(&self, settings: &IntentSettings, secrets: &Secrets) -> SiteMount {
        let options = consign_transactions::http::Options {
            admin_secret: Some(SecretDigest::new(secrets.admin_secret.reveal().to_owned())),
            policy: settings.policy(),
            hosts: self.names.clone(),
            public_per_minute: self.public_per_minute,
            writes_per_minute: self.writes_per_minute,
            write_bytes_per_minute: self.write_bytes_per_minute,
            compat: self.compat_secret.clone().map(UserTokens::new),
        };
        SiteMount::new(self.site.clone(), options)
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
            open_access_warning(&SiteSettings::read(lookup).unwrap().unwrap()).is_some()
        };
        for rail in ["stripe", "http"] {
            let rail = ("ATP_RAIL", rail);
            assert!(open(&[rail]));
            assert!(open(&[rail, ("ATP_AGENT_KEYS", "open")]));
            let signed = ("ATP_SIGNED_REQUESTS", "true");
            let unsigned = ("ATP_SIGNED_REQUESTS", "false");
            assert!(open(&[rail, signed]));
            let registered = ("ATP_AGENT_KEYS", "registered");
            let keys = (
                "ATP_REGISTERED_KEYS",
                "ed25519:oJql9HpnWYAv+VX43C0qFKXJnSO+l/hkEn/5ODRVpPA=",
            );
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
