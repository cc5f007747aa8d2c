//! Bodies of the broker's HTTP routes beside the WebSocket: joining a mesh, and sending with an API key.

mod join;
mod messages;
#[cfg(test)]
mod tests;

pub use join::{JoinAnswer, JoinRequest};
pub use messages::{MessagePost, MessagePostAnswer};

/// A body that is no request of this route. The status is 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBody(pub String);
