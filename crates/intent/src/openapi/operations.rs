//! The documentation of every route, by task. It has no effect on the handlers.

mod bulk;
mod keys;
mod nodes;
mod operate;
mod publish;
mod read;
mod work;

/// The header that names what was ignored, on routes whose protocol demands tolerance.
const IGNORED: &[&str] = &["Maybe-X-Consign-Ignored"];

pub(crate) use bulk::{bulk_job, bulk_jobs, cancel_bulk, start_bulk};
pub(crate) use keys::{
    add_user, audit, change_key, change_user, generate_key, key, keys, remove_user, revoke_key,
    rotate_key, users,
};
pub(crate) use nodes::{drain_node, nodes, resume_node};
pub(crate) use operate::{
    cancel, cleanup, count, dashboard, dead, dead_letter, grant, grants, intent, purge, remove,
    retry, revoke_grant, search,
};
pub(crate) use publish::{get_value, publish, publish_batch, set_value};
pub(crate) use read::{events, list, receipt, result, status, timeline, verify_receipt};
pub(crate) use work::{claim, extend, fail, fulfill, settle};
