//! Where an event leads: conditions, templates and baggage here, pipelines and routes built on them.
//!
//! Nothing here runs a plugin or stores anything. Given a value and a position it says which jobs come next; the caller makes them.

mod baggage;
mod condition;
mod path;
mod template;

pub use baggage::{BAGGAGE_BYTES_MAX, Claims, ClaimsError, Error as BaggageError};
pub use condition::{Condition, Error as ConditionError};
pub use path::{Path, Root, Scope};
pub use template::{Error as TemplateError, With, merge_context};
