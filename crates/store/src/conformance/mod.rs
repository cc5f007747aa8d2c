//! The suite every backend must pass.
