//! What other directories report about the trust in agents.

use consign_engine::Error;
use consign_kernel::error::Code;
use consign_kernel::ids::DAY_US;
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use super::peer_url;
use super::resolve::ResolvedAgent;
use crate::beam_id::BeamId;
use crate::directory::records::named;
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::trust;

/// Reports about one agent; the oldest one gives way to a new one.
const REPORTS_MAX: usize = 32;
/// After half a year, a report is worth less than a tenth.
const REPORTS_LIFETIME_US: i64 = 180 * DAY_US;

/// The reports about one agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentTrust {
    /// The oldest first.
    pub reports: Vec<TrustReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrustReport {
    pub source_url: String,
    pub origin_url: String,
    /// What the report was worth when it came.
    pub effective: f64,
    pub hops: u32,
    /// Milliseconds of the wall clock.
    pub reported_at: i64,
}

/// A new report.
#[derive(Clone, Debug, PartialEq)]
pub struct TrustAssertion {
    pub beam_id: BeamId,
    pub trust: AssertedTrust,
    pub source_url: String,
    pub origin_url: String,
    pub hops: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AssertedTrust {
    /// The trust in the directory of the agent, which loses half per hop.
    AtOrigin(f64),
    /// The sender has reduced it already.
    Reduced(f64),
}

impl AssertedTrust {
    /// What counts here. A value that the sender reduced is not worth more than full trust after the same hops.
    fn effective(self, hops: u32) -> f64 {
        match self {
            Self::AtOrigin(trust) => trust::effective_trust(trust, hops),
            Self::Reduced(trust) => {
                let most = trust::effective_trust(1.0, hops);
                trust::decayed_trust(trust, 0).min(most)
            }
        }
    }
}

impl AgentTrust {
    pub(crate) fn key(beam_id: &str) -> Key {
        named(Kind::BeamTrust, beam_id)
    }

    fn add(&mut self, report: TrustReport) {
        let same = |known: &TrustReport| {
            known.source_url == report.source_url && known.origin_url == report.origin_url
        };
        self.reports.retain(|known| !same(known));
        if self.reports.len() >= REPORTS_MAX {
            self.reports.remove(0);
        }
        self.reports.push(report);
    }

    /// The highest report whose origin is the directory of the agent, as far as it still counts.
    fn now(&self, home_url: &str, now_ms: i64) -> f64 {
        let values = self
            .reports
            .iter()
            .filter(|report| report.origin_url == home_url)
            .map(|report| trust::decayed_trust(report.effective, now_ms - report.reported_at));
        values.fold(0.0, f64::max)
    }
}

impl Beam {
    /// Stores a report of another directory and returns what it is worth.
    pub async fn report_trust(
        &self,
        assertion: &TrustAssertion,
    ) -> Result<TrustReport, BeamProblem> {
        let invalid = |name: &str| {
            let text = format!("{name} is not the URL of a directory");
            BeamProblem::new(Code::InvalidBody, text)
        };
        let source_url = peer_url::canonical(&assertion.source_url)
            .map_err(|_| invalid("sourceDirectoryUrl"))?;
        let origin_url = peer_url::canonical(&assertion.origin_url)
            .map_err(|_| invalid("originDirectoryUrl"))?;
        // What another directory has said has passed at least two.
        let hops_min = if source_url == origin_url { 1 } else { 2 };
        let hops = assertion
            .hops
            .clamp(hops_min, u32::from(trust::HOPS_MAX).max(hops_min));
        let report = TrustReport {
            source_url,
            origin_url,
            effective: assertion.trust.effective(hops),
            hops,
            reported_at: self.now_ms(),
        };
        let forbidden = |text: &str| Err(BeamProblem::new(Code::Forbidden, text));
        if self.active_peer(&report.source_url).await?.is_none() {
            return forbidden("sourceDirectoryUrl is not a registered peer");
        }
        let home = self.home_of_agent(assertion.beam_id.as_str()).await?;
        if home.is_some_and(|home| home.directory_url != report.origin_url) {
            return forbidden("the agent belongs to another peer than originDirectoryUrl");
        }
        let expires_at = self.engine().now().plus(REPORTS_LIFETIME_US);
        self.engine()
            .update_with(
                AgentTrust::key(assertion.beam_id.as_str()),
                |record: &mut consign_engine::Versioned<AgentTrust>, _| -> Result<(), Error> {
                    record.value.add(report.clone());
                    record.expires_at = Some(expires_at);
                    Ok(())
                },
            )
            .await?;
        Ok(report)
    }

    /// Raises the trust in a remote agent to the highest report.
    pub(super) async fn with_reported_trust(
        &self,
        mut found: ResolvedAgent,
    ) -> Result<ResolvedAgent, Error> {
        let key = AgentTrust::key(&found.agent.beam_id);
        if let Some(reported) = self.engine().load::<AgentTrust>(key).await? {
            let reported = reported.value.now(&found.directory_url, self.now_ms());
            found.agent.trust_score = found.agent.trust_score.max(reported);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1000;
    const HOME: &str = "https://home";

    fn report(source: &str, effective: f64, reported_at: i64) -> TrustReport {
        TrustReport {
            source_url: source.to_owned(),
            origin_url: HOME.to_owned(),
            effective,
            hops: 1,
            reported_at,
        }
    }

    #[test]
    fn a_report_is_halved_per_hop_and_a_reduced_one_is_capped() {
        for (trust, hops, expected) in [
            (AssertedTrust::AtOrigin(0.8), 1, 0.4),
            (AssertedTrust::AtOrigin(0.8), 3, 0.1),
            (AssertedTrust::Reduced(0.3), 1, 0.3),
            (AssertedTrust::Reduced(0.9), 1, 0.5),
            (AssertedTrust::Reduced(0.9), 2, 0.25),
            (AssertedTrust::Reduced(-1.0), 1, 0.0),
        ] {
            let effective = trust.effective(hops);
            assert!((effective - expected).abs() < 1e-9, "{trust:?} {effective}");
        }
    }

    #[test]
    fn the_highest_report_counts_and_loses_value() {
        let mut trust = AgentTrust::default();
        trust.add(report("https://a", 0.5, 0));
        trust.add(report("https://b", 0.4, 0));
        assert!((trust.now(HOME, 0) - 0.5).abs() < 1e-9);
        assert!((trust.now(HOME, WEEK_MS) - 0.45).abs() < 1e-9);
        trust.add(report("https://a", 0.1, WEEK_MS));
        assert!((trust.now(HOME, WEEK_MS) - 0.36).abs() < 1e-9);
        assert_eq!(trust.reports.len(), 2);
        assert!(trust.now("https://a", 0).abs() < 1e-9, "not its directory");
    }

    #[test]
    fn the_number_of_reports_is_bounded() {
        let mut trust = AgentTrust::default();
        for number in 0..100 {
            trust.add(report(&format!("https://{number}"), 0.1, 0));
        }
        assert_eq!(trust.reports.len(), REPORTS_MAX);
        assert_eq!(trust.reports[0].source_url, "https://68");
    }
}
