//! What a key may do, as its operator sees it and as a request has it.
//!
//! Invariant: rights are read with every request. A changed key has its new rights from the next request on.

use consign_kernel::ids::Micros;
use consign_kernel::record::{ApiKey, KeyScope, is_in_namespaces};

use crate::Caller;

/// What a key is made with, or changed to. `None` is the default of a new key, and leaves a key that exists as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySettings {
    pub name: Option<String>,
    pub scopes: Option<Vec<KeyScope>>,
    /// Names, or beginnings of names followed by `*`; empty for all.
    pub namespaces: Option<Vec<String>>,
    pub rate: Option<u32>,
    pub open_max: Option<u64>,
    pub end: Option<KeyEnd>,
}

/// When a key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEnd {
    Never,
    At(Micros),
}

impl KeySettings {
    pub(super) fn apply_to(self, key: &mut ApiKey) {
        if let Some(name) = self.name {
            key.name = name;
        }
        if let Some(scopes) = self.scopes {
            key.scopes = scopes;
        }
        if let Some(namespaces) = self.namespaces {
            key.namespaces = namespaces;
        }
        key.rate = self.rate.or(key.rate);
        key.open_max = self.open_max.or(key.open_max);
        match self.end {
            None => {}
            Some(KeyEnd::Never) => key.expires_at = None,
            Some(KeyEnd::At(end)) => key.expires_at = Some(end.0),
        }
    }
}

/// What a client may do with its key. The main key has no limits, and no scope of operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRights {
    pub(super) scopes: Vec<KeyScope>,
    pub(super) namespaces: Vec<String>,
    pub(super) open_max: u64,
    /// Whether an operator chose the rate of the key.
    pub(super) has_own_rate: bool,
    /// The id that a key made with the presented secret would have.
    pub(super) secret_id: String,
}

impl Caller {
    /// Whether the key has the scope. `admin` includes `admin-read`; no other scope includes another one.
    pub fn may(&self, scope: KeyScope) -> bool {
        let Some(rights) = &self.rights else {
            return KeyScope::DEFAULT.contains(&scope);
        };
        rights.scopes.contains(&scope)
            || scope == KeyScope::AdminRead && rights.scopes.contains(&KeyScope::Admin)
    }

    /// Whether the key may be used in a namespace that is not reserved.
    pub fn may_use_namespace(&self, namespace: &str) -> bool {
        self.rights
            .as_ref()
            .is_none_or(|rights| is_in_namespaces(&rights.namespaces, namespace))
    }

    /// Whether the key is limited to some namespaces.
    pub fn has_namespaces(&self) -> bool {
        self.rights
            .as_ref()
            .is_some_and(|rights| !rights.namespaces.is_empty())
    }

    /// How many of its intents may be open; `None` for the main key.
    pub fn open_intents_max(&self) -> Option<u64> {
        self.rights.as_ref().map(|rights| rights.open_max)
    }

    pub fn has_own_rate(&self) -> bool {
        self.rights
            .as_ref()
            .is_some_and(|rights| rights.has_own_rate)
    }

    /// Whether a key id, or the id that follows from the secret of this request, names this key.
    pub fn is_named(&self, id: &str) -> bool {
        self.id == id
            || self
                .rights
                .as_ref()
                .is_some_and(|rights| rights.secret_id == id)
    }
}

/// The outcome of [`crate::Engine::authenticate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authenticated {
    Caller(Caller),
    /// The key, or this secret of it, ended at this time.
    Expired(Micros),
    Unknown,
}

impl Authenticated {
    pub fn caller(self) -> Option<Caller> {
        match self {
            Self::Caller(caller) => Some(caller),
            Self::Expired(_) | Self::Unknown => None,
        }
    }
}

/// The public properties of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: String,
    pub owner: String,
    pub name: String,
    pub scopes: Vec<KeyScope>,
    /// Empty: all that are not reserved.
    pub namespaces: Vec<String>,
    pub rate: u32,
    pub open_max: u64,
    pub total_requests: u64,
    pub created_at: Micros,
    pub expires_at: Option<Micros>,
    pub last_used_at: Option<Micros>,
    /// The last end of a secret from before a rotation that is still accepted.
    pub past_secret_until: Option<Micros>,
    /// The reserved namespaces in which it may claim.
    pub grants: Vec<String>,
}

impl KeyInfo {
    pub(super) fn new(id: String, key: ApiKey, grants: Vec<String>, now: Micros) -> Self {
        let scopes = key.scopes().to_vec();
        let past = key.past_secrets.iter().map(|past| past.until).max();
        Self {
            id,
            name: key.name.clone(),
            scopes,
            rate: key.rate(),
            open_max: key.open_max(),
            total_requests: key.total_requests,
            created_at: Micros(key.created_at),
            expires_at: key.expires_at.map(Micros),
            last_used_at: key.last_used_at.map(Micros),
            past_secret_until: past.filter(|until| *until > now.0).map(Micros),
            namespaces: key.namespaces,
            owner: key.label,
            grants,
        }
    }
}
