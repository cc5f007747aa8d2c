//! Name resolution of outgoing calls, behind a trait so that tests decide what a name resolves to.
//!
//! Invariant: the number of running lookups of the system is limited. A lookup blocks a thread and cannot be cancelled, so
//! it keeps its place until it ends, also if its caller has given up.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Servers that answer slowly can block no more threads than these.
const LOOKUPS_MAX: usize = 32;

pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of a DNS name.
pub trait NameResolver: fmt::Debug + Send + Sync {
    /// All addresses of the name, in the order in which they are tried.
    fn lookup<'a>(&'a self, name: &'a str) -> LookupFuture<'a>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }
}

impl NameResolver for SystemResolver {
    fn lookup<'a>(&'a self, name: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            let place = Arc::clone(&self.lookups).acquire_owned().await;
            let place = place.map_err(io::Error::other)?;
            let name = name.to_owned();
            // A task of its own survives a caller that gives up.
            let lookup = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                let found = found.map(|sockets| sockets.map(|socket| socket.ip()).collect());
                drop(place);
                found
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}
