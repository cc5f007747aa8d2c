//! A user's own part of the mesh: joined meshes, directories of daemons, and the connection to a running daemon.

pub(crate) mod broker_address;
pub(crate) mod daemon_link;
pub(crate) mod home;
