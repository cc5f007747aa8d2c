//! Tokens of running hooks: what each may send, and until when.
//!
//! Invariant: a token covers its scopes for its own event only, nothing that reads, and ends with its hook or after five
//! minutes, whichever is first. Only digests are kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use consign_kernel::plant::{self, Plant};
use sha2::{Digest as _, Sha256};

use crate::daemon::metrics::{DaemonMetric, DaemonMetrics};
use crate::daemon::random;
use crate::destination::Destination;
use crate::id::TopicName;
use crate::ipc::IpcRefusal;
use crate::keys::MeshPublicKey;
use crate::limits::CAPABILITY_TOKEN_MS;
use crate::role::HookScope;

type TokenDigest = [u8; 32];

/// What started a hook, as far as its scopes depend on it.
#[derive(Debug, Clone, Default)]
pub struct HookOrigin {
    /// The member that sent the message.
    pub sender: Option<MeshPublicKey>,
    pub topic: Option<TopicName>,
}

#[derive(Debug)]
struct HookGrant {
    hook: String,
    /// The text of each scope, for the metric.
    scopes: Vec<(String, HookScope)>,
    origin: HookOrigin,
    ends_at: Instant,
    calls: u64,
}

/// The live tokens.
#[derive(Debug, Clone)]
pub(super) struct HookTokens {
    grants: Arc<Mutex<HashMap<TokenDigest, HookGrant>>>,
    metrics: DaemonMetrics,
}

/// The token of one run. Dropping it ends the token.
#[derive(Debug)]
pub(super) struct HookToken {
    text: String,
    tokens: HookTokens,
}

impl HookTokens {
    pub(super) fn new(metrics: DaemonMetrics) -> Self {
        Self {
            grants: Arc::default(),
            metrics,
        }
    }

    /// A token for one run. `<sender_pubkey>` in a scope is the sender of the event.
    pub(super) fn mint(&self, hook: &str, scopes: &[String], origin: &HookOrigin) -> HookToken {
        let text = BASE64_URL_SAFE_NO_PAD.encode(random::bytes::<32>());
        let scopes = scopes.iter().filter_map(|scope| {
            let named = match (&origin.sender, scope.as_str()) {
                (Some(sender), "dm:send:<sender_pubkey>") => format!("dm:send:{sender}"),
                _ => scope.clone(),
            };
            Some((scope.clone(), HookScope::parse(&named)?))
        });
        let grant = HookGrant {
            hook: hook.to_owned(),
            scopes: scopes.collect(),
            origin: origin.clone(),
            ends_at: Instant::now() + Duration::from_millis(CAPABILITY_TOKEN_MS),
            calls: 0,
        };
        self.grants().insert(digest(&text), grant);
        HookToken {
            text,
            tokens: self.clone(),
        }
    }

    /// Whether a running hook holds this token.
    pub(super) fn knows(&self, token: &str, now: Instant) -> bool {
        let grants = self.grants();
        let grant = grants.get(&digest(token));
        grant.is_some_and(|grant| grant.is_live(now))
    }

    /// Checks a message with this token; `None` is a call that sends nothing. The caller resolves the destination first.
    pub(super) fn authorize(
        &self,
        token: &str,
        destination: Option<&Destination>,
        now: Instant,
    ) -> Result<(), IpcRefusal> {
        let mut grants = self.grants();
        let grant = grants.get_mut(&digest(token));
        let Some(grant) = grant.filter(|grant| grant.is_live(now)) else {
            return Err(IpcRefusal::invalid_capability_token());
        };
        grant.calls += 1;
        let covering = destination.and_then(|destination| grant.covering(destination));
        let scope = covering.map_or("none", |(text, _)| text.as_str());
        self.metrics
            .count(DaemonMetric::HookCapabilityCalls, &[&grant.hook, scope]);
        if covering.is_some() || (destination.is_some() && plant::on(Plant::AnyHookScope)) {
            Ok(())
        } else {
            Err(IpcRefusal::capability_scope())
        }
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<TokenDigest, HookGrant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HookGrant {
    fn is_live(&self, now: Instant) -> bool {
        now < self.ends_at || plant::on(Plant::EndlessHookToken)
    }

    fn covering(&self, destination: &Destination) -> Option<&(String, HookScope)> {
        let answers_topic = |scope: &HookScope| {
            let topic = self.origin.topic.as_ref();
            *scope == HookScope::ReplyToEvent
                && topic.is_some_and(|topic| *destination == Destination::Topic(topic.clone()))
        };
        self.scopes.iter().find(|(_, scope)| {
            scope.covers(destination, self.origin.sender) || answers_topic(scope)
        })
    }
}

impl HookToken {
    /// The text for the environment of the hook.
    pub(super) fn reveal(&self) -> &str {
        &self.text
    }

    /// How many requests came with the token.
    pub(super) fn calls(&self) -> u64 {
        let grants = self.tokens.grants();
        grants
            .get(&digest(&self.text))
            .map_or(0, |grant| grant.calls)
    }
}

impl Drop for HookToken {
    fn drop(&mut self) {
        self.tokens.grants().remove(&digest(&self.text));
    }
}

/// A look-up by digest takes the same time for every unknown token.
fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}
