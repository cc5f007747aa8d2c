//! Lanes: the index keys that make the cost of a claim independent of the backlog for other workers.
//!
//! A lane is all claimable rows that agree on namespace, audience, target worker and capability (and, for claims that
//! name one, the goal). Rows for other workers are in other lanes, so a claim reads only the heads of its own few lanes.
//! A lane is named by a 64-bit hash; the rules compare the real fields again before a row is handed out.

use crate::intent::Intent;
use crate::plant::{self, Plant};
use crate::profile::Face;

/// The lanes of a claimable row, one per kind of claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// For claims that name the publisher.
    pub own: i64,
    pub own_goal: i64,
    /// For claims by any key; only public rows have these, and only until they are delivered.
    pub public: Option<i64>,
    pub public_goal: Option<i64>,
}

/// The lane column that a probe reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    Own,
    OwnGoal,
    Public,
    PublicGoal,
}

/// One lane that a claim reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    pub column: Column,
    pub lane: i64,
}

impl Lanes {
    pub fn of(intent: &Intent) -> Self {
        let key = LaneKey {
            face: intent.profile.profile().face,
            namespace: &intent.namespace,
            target: intent.target.as_deref(),
            capability: intent.capability.as_deref(),
        };
        let public = intent.is_for_all() || plant::on(Plant::PrivateIsPublic);
        Self {
            own: key.lane(Some(&intent.owner), None),
            own_goal: key.lane(Some(&intent.owner), Some(&intent.goal)),
            public: public.then(|| key.lane(None, None)),
            public_goal: public.then(|| key.lane(None, Some(&intent.goal))),
        }
    }

    pub fn get(&self, column: Column) -> Option<i64> {
        match column {
            Column::Own => Some(self.own),
            Column::OwnGoal => Some(self.own_goal),
            Column::Public => self.public,
            Column::PublicGoal => self.public_goal,
        }
    }

    /// Every lane the row can be found in.
    pub fn probes(&self) -> impl Iterator<Item = Probe> + '_ {
        [
            Column::Own,
            Column::OwnGoal,
            Column::Public,
            Column::PublicGoal,
        ]
        .into_iter()
        .filter_map(|column| self.get(column).map(|lane| Probe { column, lane }))
    }
}

/// The fields that all rows of a lane share, except audience and goal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneKey<'a> {
    pub(crate) face: Face,
    pub(crate) namespace: &'a str,
    pub(crate) target: Option<&'a str>,
    pub(crate) capability: Option<&'a str>,
}

impl LaneKey<'_> {
    /// `owner` is `None` for the public audience. Parts are length-prefixed, so no two keys share an input.
    pub(crate) fn lane(&self, owner: Option<&str>, goal: Option<&str>) -> i64 {
        let namespace = if plant::on(Plant::CrossNamespaces) {
            ""
        } else {
            self.namespace
        };
        let capability = self
            .capability
            .filter(|_| !plant::on(Plant::CapabilityByPrefix));
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[self.face.code()]);
        for part in [Some(namespace), owner, self.target, capability, goal] {
            let length = part.map_or(u32::MAX, |text| {
                u32::try_from(text.len()).unwrap_or(u32::MAX - 1)
            });
            hasher.update(&length.to_le_bytes());
            hasher.update(part.unwrap_or_default().as_bytes());
        }
        i64::from_le_bytes(
            hasher.finalize().as_bytes()[..8]
                .try_into()
                .expect("a hash has 32 bytes"),
        )
    }
}
