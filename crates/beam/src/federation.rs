//! Other directories: which ones this directory knows, which agents they have, and how far their statements count.
//!
//! Authority: an agent of this directory is described by this directory alone. Any other agent is described by the peer
//! that described it first, until that description expires; meanwhile no other peer can change its key or receive its
//! intents. After that, the active peer with the highest trust level that has the agent describes it.
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
pub use peers::NewPeer;
pub use remote_agent::{FederatedAgent, RemoteAgentError};
pub use resolve::{AgentScope, ResolvedAgent};
pub(crate) use unknown_agents::UnknownAgents;
