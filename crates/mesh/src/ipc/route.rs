//! The routes of the local interface: every method and path that the daemon serves.
//!
//! Invariant: this is the only list of them. The daemon finds a request here and its description is compared with it, so a
//! route that is not listed is neither served nor described.

use super::path;

/// Declares the routes with their methods and paths.
macro_rules! routes {
    ($($(#[$of:meta])* $route:ident => $method:literal $path:path,)*) => {
        /// One method of one path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum IpcRoute {
            $($(#[$of])* $route,)*
        }

        impl IpcRoute {
            pub const ALL: &'static [Self] = &[$(Self::$route),*];

            pub const fn method(self) -> &'static str {
                match self {
                    $(Self::$route => $method,)*
                }
            }

            pub const fn path(self) -> &'static str {
                match self {
                    $(Self::$route => $path,)*
                }
            }
        }
    };
}

routes! {
    Send => "POST" path::SEND,
    TopicPost => "POST" path::TOPIC_POST,
    TopicSubscribe => "POST" path::TOPIC_SUBSCRIBE,
    TopicUnsubscribe => "POST" path::TOPIC_UNSUBSCRIBE,
    TopicList => "GET" path::TOPIC_LIST,
    Inbox => "GET" path::INBOX,
    Peers => "GET" path::PEERS,
    Profile => "POST" path::PROFILE,
    FileShare => "POST" path::FILE_SHARE,
    FileGet => "GET" path::FILE_GET,
    FileList => "GET" path::FILE_LIST,
    Events => "GET" path::EVENTS,
    Health => "GET" path::HEALTH,
    Metrics => "GET" path::METRICS,
    Version => "GET" path::VERSION,
    Compat => "GET" path::COMPAT,
    Heartbeat => "POST" path::HEARTBEAT,
    Intents => "POST" path::INTENTS,
    StateGet => "GET" path::STATE,
    StateSet => "POST" path::STATE,
    Outbox => "GET" path::OUTBOX,
    OutboxRequeue => "POST" path::OUTBOX_REQUEUE,
    OutboxDrop => "POST" path::OUTBOX_DROP,
    OutboxPrune => "POST" path::OUTBOX_PRUNE,
    TokenRotate => "POST" path::TOKEN_ROTATE,
    KeypairRotate => "POST" path::KEYPAIR_ROTATE,
    ArchiveCleanup => "POST" path::ARCHIVE_CLEANUP,
    Reload => "POST" path::RELOAD,
    Shutdown => "POST" path::SHUTDOWN,
}

impl IpcRoute {
    /// The route of a request.
    pub fn find(method: &str, path: &str) -> Option<Self> {
        let is_it = |route: &&Self| route.path() == path && route.method() == method;
        Self::ALL.iter().find(is_it).copied()
    }

    /// Whether it sends a message, which the token of a hook may cover.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::TopicPost)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_path_has_a_route_and_every_route_a_path_with_a_counter() {
        let routed: BTreeSet<&str> = IpcRoute::ALL.iter().map(|route| route.path()).collect();
        let counted: BTreeSet<&str> = path::ALL.iter().copied().collect();
        assert_eq!(routed, counted);
        for route in IpcRoute::ALL {
            assert_eq!(IpcRoute::find(route.method(), route.path()), Some(*route));
        }
        assert_eq!(IpcRoute::find("PUT", path::STATE), None);
    }
}
