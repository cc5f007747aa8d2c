//! The documentation of every route, by task. It has no effect on the handlers.

mod keys;
mod nodes;
mod operate;
mod publish;
mod read;
mod work;

pub(crate) use keys::{
    add_user, audit, change_key, change_user, generate_key, key, keys, remove_user, revoke_key,
    rotate_key, users,
};
pub(crate) use nodes::{drain_node, nodes, resume_node};
pub(crate) use operate::{
    cancel, cleanup, dashboard, dead, dead_letter, grant, grants, intent, purge, retry,
    revoke_grant,
};
pub(crate) use publish::{get_value, publish, publish_batch, set_value};
pub(crate) use read::{events, list, receipt, result, status, timeline, verify_receipt};
pub(crate) use work::{claim, extend, fail, fulfill, settle};
