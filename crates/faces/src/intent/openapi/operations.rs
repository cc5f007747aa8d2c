//! The documentation of every route, by task. It has no effect on the handlers.

mod nodes;
mod operate;
mod publish;
mod read;
mod server;
mod work;

pub(in crate::intent) use nodes::{drain_node, nodes, resume_node};
pub(in crate::intent) use operate::{
    cancel, cleanup, dashboard, dead, dead_letter, generate_key, intent, keys, purge, retry,
    revoke_key,
};
pub(in crate::intent) use publish::{get_value, publish, publish_batch, set_value};
pub(in crate::intent) use read::{events, list, receipt, result, status, timeline, verify_receipt};
pub(in crate::intent) use server::{docs, health, jwks, metrics, openapi, root};
pub(in crate::intent) use work::{claim, extend, fail, fulfill, settle};
