//! Why a WebSocket is closed, and the exit status of the daemon that follows.
//!
//! Invariant: a reason fits a close frame. Reasons of a failed negotiation are compact JSON with `kind`, `feature` and
//! `detail`; the other reasons are upstream's words.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::limits::CLOSE_REASON_BYTES_MAX;

/// The code of a close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MeshCloseCode {
    /// The connection is replaced by one of the same session, or ends.
    Normal,
    ShuttingDown,
    /// A refused hello; the reason is its word.
    HelloRefused,
    FrameTooLong,
    /// Removed by an operator: the client must not connect again.
    Kicked,
    Banned,
    ReplacedByNewer,
    MemberAlreadyConnected,
    FeatureUnavailable,
    FeatureParamInvalid,
    FeatureParamBelowFloor,
}

impl MeshCloseCode {
    pub const ALL: &[Self] = &[
        Self::Normal,
        Self::ShuttingDown,
        Self::HelloRefused,
        Self::FrameTooLong,
        Self::Kicked,
        Self::Banned,
        Self::ReplacedByNewer,
        Self::MemberAlreadyConnected,
        Self::FeatureUnavailable,
        Self::FeatureParamInvalid,
        Self::FeatureParamBelowFloor,
    ];

    pub const fn code(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::ShuttingDown => 1001,
            Self::HelloRefused => 1008,
            Self::FrameTooLong => 1009,
            Self::Kicked => 4001,
            Self::Banned => 4002,
            Self::ReplacedByNewer => 4003,
            Self::MemberAlreadyConnected => 4004,
            Self::FeatureUnavailable => 4010,
            Self::FeatureParamInvalid => 4011,
            Self::FeatureParamBelowFloor => 4012,
        }
    }

    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.code() == code)
    }

    /// The word of the reason; a refused hello has its own instead.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Normal => "session_replaced",
            Self::ShuttingDown => "shutting down",
            Self::HelloRefused => "malformed",
            Self::FrameTooLong => "frame too large",
            Self::Kicked => "kicked",
            Self::Banned => "banned",
            Self::ReplacedByNewer => "replaced_by_newer_connection",
            Self::MemberAlreadyConnected => "member_already_connected",
            Self::FeatureUnavailable => "feature_unavailable",
            Self::FeatureParamInvalid => "feature_param_invalid",
            Self::FeatureParamBelowFloor => "feature_param_below_floor",
        }
    }

    /// How a daemon ends after its connection closed so; `None` if it connects again.
    pub const fn exit(self) -> Option<DaemonExit> {
        match self {
            Self::Normal | Self::ShuttingDown | Self::HelloRefused | Self::FrameTooLong => None,
            Self::Kicked => Some(DaemonExit::General),
            Self::Banned => Some(DaemonExit::Revoked),
            Self::ReplacedByNewer => Some(DaemonExit::Replaced),
            Self::MemberAlreadyConnected => Some(DaemonExit::General),
            Self::FeatureUnavailable => Some(DaemonExit::FeatureUnavailable),
            Self::FeatureParamInvalid => Some(DaemonExit::FeatureParamInvalid),
            Self::FeatureParamBelowFloor => Some(DaemonExit::FeatureParamBelowFloor),
        }
    }
}

/// The exit status of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonExit {
    Stopped,
    /// A failure without a status of its own, or another daemon of this mesh is running.
    General,
    NoMesh,
    BadConfig,
    HostFingerprint,
    Revoked,
    Replaced,
    FeatureUnavailable,
    FeatureParamInvalid,
    FeatureParamBelowFloor,
}

impl DaemonExit {
    pub const fn status(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::General => 1,
            Self::NoMesh => 2,
            Self::BadConfig => 3,
            Self::HostFingerprint => 4,
            Self::Revoked => 5,
            Self::Replaced => 6,
            Self::FeatureUnavailable => 10,
            Self::FeatureParamInvalid => 11,
            Self::FeatureParamBelowFloor => 12,
        }
    }
}

/// The reason of a failed negotiation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshCloseReason {
    pub kind: String,
    pub feature: String,
    pub detail: String,
}

impl MeshCloseReason {
    /// Compact JSON that fits a close frame: the detail is shortened if needed, and the feature after it.
    pub fn to_text(&self) -> String {
        let mut short = self.clone();
        loop {
            let text = serde_json::to_string(&short).expect("strings are JSON");
            if text.len() <= CLOSE_REASON_BYTES_MAX {
                return text;
            }
            // Both are shortened by whole characters, so the text stays valid.
            if short.detail.pop().is_none() && short.feature.pop().is_none() {
                short.kind.pop();
            }
        }
    }
}
