//! The JSON shapes of the protocol, rendered from the types of the runtime. The command line shows the same shapes.

pub mod events;
