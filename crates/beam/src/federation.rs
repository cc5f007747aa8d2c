//! Other directories: which ones this directory knows, which agents they have, and how far their statements count.
//!
//! Authority: an agent of this directory is described by this directory alone. Any other agent belongs to the peer that
//! described it first, until that peer is removed; no other peer can change its key, receive its intents or raise the trust
//! in it. Peers are registered, and their trust levels changed, by operators alone.
//!
//! Invariant: a response of a peer is checked completely before any part of it is used, and a peer that is unreachable,
//! slow or wrong is skipped.

mod assertions;
mod calls;
mod inbound;
mod known_agents;
pub(crate) mod peer_url;
mod peers;
mod remote_agent;
mod resolve;
mod sync;
mod unknown_agents;

pub use assertions::{AgentTrust, AssertedTrust, TrustAssertion, TrustReport};
pub(crate) use inbound::SENDERS_PER_SOURCE;
pub(crate) use peer_url::is_same_directory;
pub use peers::{NewPeer, PeerRegistrar};
pub use remote_agent::{FederatedAgent, RemoteAgentError};
pub use resolve::{AgentScope, ResolvedAgent};
pub(crate) use unknown_agents::UnknownAgents;
