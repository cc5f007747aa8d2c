//! negotiation
