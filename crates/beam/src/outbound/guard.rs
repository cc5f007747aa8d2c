//! The address guard: which URLs of agents and peers may be called.
//!
//! Invariant: a [`CheckedTarget`] holds the addresses that were checked, and calls use these and no others, so an answer of
//! the name server after the check has no effect. A URL may be called if it is `https` and every address of its host is
//! public, or if its host and port stand in the operator's list. URLs that the operator configured himself are not
//! checked.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::public::is_public;
use super::resolve::{NameResolver, SystemResolver};
use super::url::{TargetAuthority, TargetHost, TargetUrl, UrlError};

/// The time limit of one name lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// Names that no public name server answers for, or for this machine or its network only.
const PRIVATE_SUFFIXES: &[&str] = &["localhost", "localdomain", "local", "internal", "home.arpa"];

/// Hosts and ports that may be called although they are not public or not `https`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedTargets(HashSet<TargetAuthority>);

/// An entry of the list that is not a host with a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not a host with a port: {why}")]
pub struct AllowedTargetsError {
    pub entry: String,
    pub why: UrlError,
}

impl AllowedTargets {
    /// Reads a list such as `127.0.0.1:9000, [::1]:9000, peer.internal:443`. Empty entries do not count.
    pub fn parse(list: &str) -> Result<Self, AllowedTargetsError> {
        list.split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(|entry| {
                TargetAuthority::parse(entry, None).map_err(|why| AllowedTargetsError {
                    entry: entry.to_owned(),
                    why,
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Why a URL is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("{target} is not https")]
    NotHttps { target: String },
    /// The address itself is left out: it may describe a private network.
    #[error("{target} is not a public address")]
    NotPublic { target: String },
    /// The guard has no objection, but there is nothing to connect to.
    #[error("the name of {target} cannot be resolved: {why}")]
    Unresolved { target: String, why: String },
}

impl GuardError {
    /// Whether the URL must not be called, in contrast to a name that has no address now.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Url(_) | Self::NotHttps { .. } | Self::NotPublic { .. } => true,
            Self::Unresolved { .. } => false,
        }
    }
}

/// A URL with the socket addresses at which it may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedTarget {
    url: TargetUrl,
    sockets: Vec<SocketAddr>,
    is_listed: bool,
}

impl CheckedTarget {
    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    pub fn sockets(&self) -> &[SocketAddr] {
        &self.sockets
    }

    /// Whether the operator listed or configured this host and port.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }
}

#[derive(Debug, Clone)]
pub struct AddressGuard {
    allowed: AllowedTargets,
    resolver: Arc<dyn NameResolver>,
}

impl AddressGuard {
    pub fn new(allowed: AllowedTargets) -> Self {
        Self::with_resolver(allowed, Arc::new(SystemResolver::default()))
    }

    pub fn with_resolver(allowed: AllowedTargets, resolver: Arc<dyn NameResolver>) -> Self {
        Self { allowed, resolver }
    }

    /// Decides what the text alone decides, without a name lookup. The URL has to be checked again by
    /// [`resolve`](Self::resolve) for each call.
    pub fn check_text(&self, text: &str) -> Result<TargetUrl, GuardError> {
        let url = TargetUrl::parse(text)?;
        self.check(&url)?;
        Ok(url)
    }

    /// Looks up the host and checks all its addresses. One address that is not public refuses the URL, because a name with
    /// mixed addresses has no other use than to pass this check.
    pub async fn resolve(&self, url: &TargetUrl) -> Result<CheckedTarget, GuardError> {
        self.check(url)?;
        let target = self.lookup(url).await?;
        let is_public = target.sockets.iter().all(|socket| is_public(socket.ip()));
        if is_public || target.is_listed {
            Ok(target)
        } else {
            Err(not_public(url))
        }
    }

    /// Looks up the host of a URL that the operator configured, without a check.
    pub async fn resolve_configured(&self, url: &TargetUrl) -> Result<CheckedTarget, GuardError> {
        let target = self.lookup(url).await?;
        Ok(CheckedTarget {
            is_listed: true,
            ..target
        })
    }

    fn check(&self, url: &TargetUrl) -> Result<(), GuardError> {
        if self.is_allowed(url) {
            return Ok(());
        }
        if !url.is_https() {
            return Err(GuardError::NotHttps {
                target: url.authority().to_string(),
            });
        }
        let may_be_public = match &url.authority().host {
            TargetHost::Ip(ip) => is_public(*ip),
            TargetHost::Name(name) => !is_private_name(name),
        };
        if may_be_public {
            Ok(())
        } else {
            Err(not_public(url))
        }
    }

    fn is_allowed(&self, url: &TargetUrl) -> bool {
        self.allowed.0.contains(url.authority())
    }

    async fn lookup(&self, url: &TargetUrl) -> Result<CheckedTarget, GuardError> {
        let unresolved = |why: String| GuardError::Unresolved {
            target: url.authority().to_string(),
            why,
        };
        let ips: Vec<IpAddr> = match &url.authority().host {
            TargetHost::Ip(ip) => vec![*ip],
            TargetHost::Name(name) => {
                let lookup = tokio::time::timeout(LOOKUP_LIMIT, self.resolver.lookup(name));
                let found = lookup
                    .await
                    .map_err(|_| unresolved("the lookup takes too long".to_owned()))?;
                found.map_err(|error| unresolved(error.to_string()))?
            }
        };
        if ips.is_empty() {
            return Err(unresolved("it has no address".to_owned()));
        }
        let port = url.authority().port;
        Ok(CheckedTarget {
            url: url.clone(),
            sockets: ips.into_iter().map(|ip| (ip, port).into()).collect(),
            is_listed: self.is_allowed(url),
        })
    }
}

fn not_public(url: &TargetUrl) -> GuardError {
    GuardError::NotPublic {
        target: url.authority().to_string(),
    }
}

/// A name without a dot belongs to the local network.
fn is_private_name(name: &str) -> bool {
    !name.contains('.')
        || PRIVATE_SUFFIXES.iter().any(|suffix| {
            name.strip_suffix(suffix)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

#[cfg(test)]
pub(super) mod tests;
