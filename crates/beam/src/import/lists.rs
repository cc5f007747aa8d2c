//! Access rules, delegations and other directories.

use std::collections::BTreeMap;

use consign_engine::{
    Error, ForeignAclRule, ForeignDelegation, ForeignPeer, UnitOfWork, Versioned,
};

use super::instants::{iso_ms, iso_or_ms, maybe_iso_ms};
use super::{BeamImport, PAGE, bounded, shown};
use crate::acl::AclEntry;
use crate::directory::access_rules::RULES_MAX;
use crate::directory::delegations::DELEGATIONS_MAX;
use crate::directory::records::{AclList, AclRule, Agent, BeamPeer, Delegation, DelegationList};
use crate::federation::peer_url;

/// The end of a delegation that has none: the last day of the year 9999.
const NO_END_MS: i64 = 253_402_214_400_000;
/// The trust of a directory that has none.
const TRUST_DEFAULT: f64 = 0.5;

impl<P: FnMut(u64, u64)> BeamImport<'_, P> {
    pub(super) async fn import_acls(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.acls(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            let mut targets: BTreeMap<String, Vec<ForeignAclRule>> = BTreeMap::new();
            for row in page.rows {
                match row {
                    Ok(rule) => {
                        let rules = targets.entry(rule.target_beam_id.clone());
                        rules.or_default().push(rule);
                    }
                    Err(row) => self.report.skip_unreadable("access rule", &row),
                }
            }
            for (target, rules) in targets {
                self.rules_of_agent(&target, rules).await?;
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn rules_of_agent(
        &mut self,
        target: &str,
        rules: Vec<ForeignAclRule>,
    ) -> Result<(), Error> {
        let key = AclList::key(target);
        let mut list = self.engine.load_or_default::<AclList>(key).await?;
        // In a dry run, the agent is not stored yet.
        let is_known =
            self.options.dry_run || self.engine.record(Agent::key(target)).await?.is_some();
        let mut unit = UnitOfWork::default();
        for foreign in rules {
            let name = format!("access rule {}", foreign.id);
            if !is_known {
                self.report
                    .skip(format!("{name}: {} is not registered", shown(target)));
                continue;
            }
            let rule = match acl_rule(&foreign) {
                Ok(_) if list.value.rules.len() >= RULES_MAX => {
                    let reason = format!("an agent has at most {RULES_MAX} access rules");
                    self.report.skip(format!("{name}: {reason}"));
                    continue;
                }
                Ok(rule) => rule,
                Err(reason) => {
                    self.report.skip(format!("{name}: {reason}"));
                    continue;
                }
            };
            let is_same = |known: &AclRule| {
                known.intent_type == rule.intent_type && known.allowed_from == rule.allowed_from
            };
            if list.value.rules.iter().any(is_same) {
                self.report.acls_present += 1;
                continue;
            }
            let mut rule = rule;
            if !self.options.dry_run {
                rule.id = self.acls.assign(self.engine, foreign.id).await?;
                unit.put(AclList::number_key(rule.id), &target);
            }
            list.value.rules.push(rule);
            self.report.acls_taken += 1;
        }
        if !unit.is_empty() {
            self.write(&list, unit).await?;
        }
        Ok(())
    }

    pub(super) async fn import_delegations(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.delegations(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            for row in page.rows {
                match row {
                    Ok(foreign) => self.delegation(&foreign).await?,
                    Err(row) => self.report.skip_unreadable("delegation", &row),
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn delegation(&mut self, foreign: &ForeignDelegation) -> Result<(), Error> {
        let key = DelegationList::key(&foreign.grantor_beam_id);
        let mut list = self.engine.load_or_default::<DelegationList>(key).await?;
        let granted = match delegations(foreign) {
            Ok(granted) if list.value.granted.len() + granted.len() > DELEGATIONS_MAX => {
                let reason = format!("an agent grants at most {DELEGATIONS_MAX} delegations");
                self.report
                    .skip(format!("delegation {}: {reason}", foreign.id));
                return Ok(());
            }
            Ok(granted) => granted,
            Err(reason) => {
                self.report
                    .skip(format!("delegation {}: {reason}", foreign.id));
                return Ok(());
            }
        };
        let mut is_changed = false;
        for mut delegation in granted {
            let is_same = |known: &Delegation| {
                known.grantee == delegation.grantee
                    && known.scope == delegation.scope
                    && known.created_at == delegation.created_at
            };
            if list.value.granted.iter().any(is_same) {
                self.report.delegations_present += 1;
                continue;
            }
            if !self.options.dry_run {
                // Further scopes of the same row need numbers of their own.
                let number = if is_changed { 0 } else { foreign.id };
                delegation.id = self.delegations.assign(self.engine, number).await?;
            }
            is_changed = true;
            list.value.granted.push(delegation);
            self.report.delegations_taken += 1;
        }
        if is_changed {
            self.write(&list, UnitOfWork::default()).await?;
        }
        Ok(())
    }

    /// Writes a changed list with further steps, in one commit.
    async fn write<T: serde::Serialize>(
        &self,
        list: &Versioned<T>,
        mut unit: UnitOfWork,
    ) -> Result<(), Error> {
        if !self.options.dry_run {
            unit.replace(list);
            self.engine.commit(unit).await?;
        }
        Ok(())
    }

    pub(super) async fn import_peers(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.peers(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            for row in page.rows {
                match row {
                    Ok(foreign) => self.peer(foreign).await?,
                    Err(row) => self.report.skip_unreadable("peer", &row),
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn peer(&mut self, foreign: ForeignPeer) -> Result<(), Error> {
        let number = foreign.id;
        let mut peer = match peer(foreign) {
            Ok(peer) => peer,
            Err(reason) => {
                self.report.skip(format!("peer {number}: {reason}"));
                return Ok(());
            }
        };
        let key = BeamPeer::key(&peer.directory_url);
        if self.engine.record(key.clone()).await?.is_some() {
            self.report.peers_present += 1;
            return Ok(());
        }
        if !self.options.dry_run {
            peer.id = self.peers.assign(self.engine, number).await?;
            self.engine.put(Versioned::new(key, peer).put()).await?;
        }
        self.report.peers_taken += 1;
        Ok(())
    }
}

fn acl_rule(foreign: &ForeignAclRule) -> Result<AclRule, String> {
    bounded(&[Some(&foreign.intent_type), Some(&foreign.allowed_from)])?;
    let entry = AclEntry::new(
        &foreign.target_beam_id,
        &foreign.intent_type,
        &foreign.allowed_from,
    );
    let entry = entry.map_err(|missing| missing.to_string())?;
    Ok(AclRule {
        id: 0,
        intent_type: entry.intent().to_owned(),
        allowed_from: entry.allowed_from().to_owned(),
        created_at: iso_ms("created_at", &foreign.created_at)?,
    })
}

/// A delegation for each of its scopes.
fn delegations(foreign: &ForeignDelegation) -> Result<Vec<Delegation>, String> {
    bounded(&[Some(&foreign.scope), Some(&foreign.grantee_beam_id)])?;
    let created_at = iso_ms("created_at", &foreign.created_at)?;
    let expires_at = match foreign.expires_at.as_deref() {
        Some(text) => iso_or_ms("expires_at", text)?,
        None => NO_END_MS,
    };
    let scopes: Vec<String> =
        serde_json::from_str(&foreign.scope).unwrap_or_else(|_| vec![foreign.scope.clone()]);
    let granted = scopes.into_iter().map(|scope| Delegation {
        id: 0,
        grantee: foreign.grantee_beam_id.clone(),
        scope,
        expires_at,
        created_at,
        signature: String::new(),
        // The file does not say when.
        revoked_at: foreign.revoked.then_some(created_at),
    });
    Ok(granted.collect())
}

fn peer(foreign: ForeignPeer) -> Result<BeamPeer, String> {
    bounded(&[Some(&foreign.directory_url), Some(&foreign.public_key)])?;
    let directory_url = peer_url::canonical(&foreign.directory_url)
        .map_err(|error| format!("its directory_url cannot be used: {error}"))?;
    Ok(BeamPeer {
        id: 0,
        directory_url,
        public_key: foreign.public_key,
        trust_level: foreign.trust_level.unwrap_or(TRUST_DEFAULT),
        status: foreign.status.unwrap_or_else(|| "active".to_owned()),
        created_at: iso_ms("created_at", &foreign.created_at)?,
        last_seen: maybe_iso_ms("last_seen", foreign.last_seen.as_deref())?,
        synced_at: maybe_iso_ms("synced_at", foreign.synced_at.as_deref())?,
        agents: 0,
    })
}
