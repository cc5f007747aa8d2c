//! The parameters of one feature, and what is wrong with them.

use consign_kernel::plant::{self, Plant};
use serde_json::{Map, Value};

use super::NegotiationFailure;
use crate::close::MeshCloseCode;
use crate::max_age::DedupeWindow;
use crate::role::ClonePolicy;

/// An optional parameter that was ignored: `feature_optional_param_invalid` in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterWarning {
    pub feature: String,
    pub param: String,
    pub reason: String,
}

/// The parameters that a broker sent for a feature.
#[derive(Debug)]
pub struct FeatureParameters<'a> {
    feature: &'a str,
    params: &'a Map<String, Value>,
    warnings: Vec<ParameterWarning>,
}

impl<'a> FeatureParameters<'a> {
    pub const fn new(feature: &'a str, params: &'a Map<String, Value>) -> Self {
        Self {
            feature,
            params,
            warnings: Vec::new(),
        }
    }

    pub const fn feature(&self) -> &'a str {
        self.feature
    }

    pub(super) fn into_warnings(self) -> Vec<ParameterWarning> {
        self.warnings
    }

    pub(super) fn require_version(&self, version: i64) -> Result<(), NegotiationFailure> {
        match self.integer("version") {
            Some(offered) if offered == version => Ok(()),
            Some(other) => Err(self.invalid(format!("version {other} is unknown"))),
            None => Err(self.invalid("version is missing")),
        }
    }

    /// The version before fingerprints were compared counts as a missing feature.
    pub(super) fn require_dedupe_version(
        &self,
        missing: i64,
        version: i64,
    ) -> Result<(), NegotiationFailure> {
        if self.integer("version") == Some(missing) && plant::on(Plant::OldDedupeAccepted) {
            return Ok(());
        }
        if self.integer("version") == Some(missing) {
            let detail = "version 1 does not compare fingerprints";
            return Err(NegotiationFailure::unavailable(self.feature, detail));
        }
        self.require_version(version)
    }

    pub(super) fn require_true(&self, name: &str) -> Result<(), NegotiationFailure> {
        match self.params.get(name) {
            Some(Value::Bool(true)) => Ok(()),
            _ => Err(self.invalid(format!("{name} is not true"))),
        }
    }

    pub(super) fn require_integer(&self, name: &str, min: u64) -> Result<u64, NegotiationFailure> {
        let value = self
            .integer(name)
            .and_then(|value| u64::try_from(value).ok());
        match value {
            Some(value) if value >= min => Ok(value),
            _ => Err(self.invalid(format!("{name} is not an integer of at least {min}"))),
        }
    }

    pub(super) fn dedupe_window(&self, days_min: u32) -> Result<DedupeWindow, NegotiationFailure> {
        match self.params.get("mode").and_then(Value::as_str) {
            Some("permanent") => return Ok(DedupeWindow::Permanent),
            Some("retention_scoped") => {}
            _ => return Err(self.invalid("mode is unknown")),
        }
        let days = self.require_integer("dedupe_retention_days", 1)?;
        let days = u32::try_from(days).unwrap_or(u32::MAX);
        if days < days_min {
            return Err(NegotiationFailure::new(
                MeshCloseCode::FeatureParamBelowFloor,
                self.feature,
                format!("dedupe_retention_days {days} < {days_min}"),
            ));
        }
        Ok(DedupeWindow::Days(days))
    }

    pub(super) fn optional_integer(&mut self, name: &str, min: i64) {
        if self.params.contains_key(name) && self.integer(name).is_none_or(|value| value < min) {
            self.warn(name, format!("not an integer of at least {min}"));
        }
    }

    pub(super) fn optional_policy(&mut self, name: &str) {
        let Some(value) = self.params.get(name) else {
            return;
        };
        if value.as_str().and_then(ClonePolicy::parse).is_none() {
            self.warn(name, "unknown policy".to_owned());
        }
    }

    /// A whole number, however it is written.
    fn integer(&self, name: &str) -> Option<i64> {
        let value = self.params.get(name)?;
        value.as_i64().or_else(|| {
            let number = value.as_f64()?;
            let is_exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_991.0;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "checked to be whole and within 2^53"
            )]
            is_exact.then_some(number as i64)
        })
    }

    fn invalid(&self, detail: impl Into<String>) -> NegotiationFailure {
        NegotiationFailure::invalid(self.feature, detail)
    }

    fn warn(&mut self, param: &str, reason: String) {
        self.warnings.push(ParameterWarning {
            feature: self.feature.to_owned(),
            param: param.to_owned(),
            reason,
        });
    }
}
