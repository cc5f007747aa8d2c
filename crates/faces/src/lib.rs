//! Under construction.

pub mod intent {
    pub mod signature;
}
pub mod web;
