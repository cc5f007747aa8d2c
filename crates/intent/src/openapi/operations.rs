//! The documentation of every route, by task. It has no effect on the handlers.

mod nodes;
mod operate;
mod publish;
mod read;
mod work;

pub(crate) use nodes::{drain_node, nodes, resume_node};
pub(crate) use operate::{
    cancel, cleanup, dashboard, dead, dead_letter, generate_key, grant, grants, intent, keys,
    purge, retry, revoke_grant, revoke_key,
};
pub(crate) use publish::{get_value, publish, publish_batch, set_value};
pub(crate) use read::{events, list, receipt, result, status, timeline, verify_receipt};
pub(crate) use work::{claim, extend, fail, fulfill, settle};
