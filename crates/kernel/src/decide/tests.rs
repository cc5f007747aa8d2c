//! Cases over whole decisions.
