//! Who a message is for: the destination behind its target, and a row for each recipient.
//!
//! Invariant: what is refused because of a kept list was looked up in the present one before; what is accepted by a kept
//! list is checked by the commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use consign_engine::{Error, Versioned};

use super::MeshSender;
use crate::accept::{AcceptReason, AcceptRefusal, CheckedSend};
use crate::broker::records::{MeshMember, TopicRecord};
use crate::broker::roster::Roster;
use crate::broker::{Broker, BrokerMetric};
use crate::destination::{Destination, ResolvedTarget, TargetSpec};
use crate::id::{GroupName, QueueName};
use crate::keys::MeshPublicKey;
use crate::mention::mentions;
use crate::role::{Delivered, may_post};

/// Marks the rows of a member's own lane; those of a session have its key in this place.
const MEMBER_LANE: &str = "member";

/// Named by a claim for the mail of a member.
pub(crate) fn member_capability() -> String {
    MEMBER_LANE.to_owned()
}

/// Named by a claim for the mail of one session.
pub(crate) fn session_capability(session: MeshPublicKey) -> String {
    session.to_string()
}

/// A recipient of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecipientRow {
    pub(super) member_id: String,
    /// The session, for what reaches that session alone.
    pub(super) session: Option<MeshPublicKey>,
}

/// The target of a message, found.
pub(super) struct Resolved {
    pub(super) target: ResolvedTarget,
    roster: Arc<Roster>,
    topic: Option<Arc<Versioned<TopicRecord>>>,
    /// Of a direct message.
    recipient: Option<RecipientRow>,
}

/// What an accepted message writes.
pub(super) struct Plan {
    pub(super) target: ResolvedTarget,
    pub(super) roster: Arc<Roster>,
    pub(super) topic: Option<Arc<Versioned<TopicRecord>>>,
    pub(super) recipients: Vec<RecipientRow>,
    /// The queues that get an item: the addressed one, or those that the topic fills.
    pub(super) queues: Vec<QueueName>,
    /// The ids of the members that the message mentions.
    pub(super) mentions: Vec<String>,
    /// By what messages are listed: the id of a topic, or the destination in its mesh.
    pub(super) owner: String,
    pub(super) sender_key: MeshPublicKey,
    pub(super) sender_name: String,
    /// It is kept whether or not it is delivered, because members read it later.
    pub(super) is_history: bool,
}

impl Broker {
    /// Finds the destination and all recipients of a message.
    pub(super) async fn plan(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
    ) -> Result<Result<Plan, AcceptRefusal>, Error> {
        let resolved = match self.resolve(sender, checked).await? {
            Ok(resolved) => resolved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let planned = self.plan_resolved(sender, checked, &resolved);
        if planned.is_ok() {
            return Ok(planned);
        }
        // A kept list may be outdated; what it refuses is decided by the present one.
        let current = self.resolve_now(sender, checked).await?;
        Ok(current.and_then(|resolved| self.plan_resolved(sender, checked, &resolved)))
    }

    /// Finds the destination of a message.
    pub(super) async fn resolve(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
    ) -> Result<Result<Resolved, AcceptRefusal>, Error> {
        let roster = self.roster(&sender.mesh.id).await?;
        let topic = match topic_of(&checked.target) {
            Some(name) => self.kept_topic(&sender.mesh.id, name).await?,
            None => None,
        };
        match self.resolve_in(sender, checked, roster, topic) {
            Ok(resolved) => Ok(Ok(resolved)),
            Err(_) => self.resolve_now(sender, checked).await,
        }
    }

    fn count_dropped(&self) {
        let counters = self.counters();
        counters.count(BrokerMetric::DROPPED_BY_GRANT, &[]);
    }

    /// The same by the present lists, which later messages use too.
    pub(super) async fn resolve_now(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
    ) -> Result<Result<Resolved, AcceptRefusal>, Error> {
        let roster = self.current_roster(&sender.mesh.id).await?;
        let topic = match topic_of(&checked.target) {
            Some(name) => self.current_topic(&sender.mesh.id, name).await?,
            None => None,
        };
        Ok(self.resolve_in(sender, checked, roster, topic))
    }

    fn resolve_in(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
        roster: Arc<Roster>,
        topic: Option<Arc<Versioned<TopicRecord>>>,
    ) -> Result<Resolved, AcceptRefusal> {
        let not_found = |text: &str| AcceptRefusal::new(AcceptReason::NotFound, text);
        let mut recipient = None;
        let target = match &checked.target {
            TargetSpec::Everyone => ResolvedTarget::Everyone,
            TargetSpec::Group(name) => ResolvedTarget::Group(name.clone()),
            TargetSpec::Queue(name) => ResolvedTarget::Queue(name.clone()),
            TargetSpec::Topic(_) => {
                let topic = topic.as_ref();
                let topic = topic.ok_or_else(|| not_found("there is no such topic"))?;
                ResolvedTarget::Topic(topic.value.name.clone())
            }
            TargetSpec::Key(key) => {
                let unknown = || not_found("no member and no session has this key");
                let (member, session) = if let Some(member) = roster.by_key(*key) {
                    (member, None)
                } else {
                    let id = self.inner.peers.member_of_session(&sender.mesh.id, *key);
                    let member = id.and_then(|id| roster.active(&id));
                    (member.ok_or_else(unknown)?, Some(*key))
                };
                // A member that has rotated its key is also meant by a former one, as the sender hashed it.
                let named = checked.claimed_member().unwrap_or(*key);
                let key = if member.has_key(named) {
                    named
                } else {
                    member.pubkey
                };
                recipient = Some(RecipientRow {
                    member_id: member.id.clone(),
                    session,
                });
                ResolvedTarget::Member(key)
            }
        };
        Ok(Resolved {
            target,
            roster,
            topic,
            recipient,
        })
    }

    fn plan_resolved(
        &self,
        sender: &MeshSender,
        checked: &CheckedSend,
        resolved: &Resolved,
    ) -> Result<Plan, AcceptRefusal> {
        let forbidden = |text: &str| AcceptRefusal::new(AcceptReason::Forbidden, text);
        let Resolved {
            target,
            roster,
            topic,
            recipient,
        } = resolved;
        let own = roster.active(&sender.member_id);
        let own = own.ok_or_else(|| forbidden("the sender is no member of this mesh"))?;
        let destination = target.destination();
        let gets = |member: &MeshMember| member.grants.delivered(own.keys(), &destination);
        let mesh_id = &sender.mesh.id;
        let mut queues = Vec::new();
        let rows: BTreeSet<RecipientRow> = match (target, topic) {
            (ResolvedTarget::Queue(name), _) => {
                queues.push(name.clone());
                BTreeSet::new()
            }
            (ResolvedTarget::Member(_), _) => recipient.iter().cloned().collect(),
            (ResolvedTarget::Topic(_), Some(topic)) => {
                if !may_post(topic.value.role_of(&own.id)) {
                    return Err(forbidden("the sender may not post to this topic"));
                }
                let subscriptions = topic.value.subscriptions.iter();
                queues.extend(subscriptions.map(|subscription| subscription.queue.clone()));
                let members = topic.value.members.iter();
                members.map(|member| of_member(&member.member_id)).collect()
            }
            (ResolvedTarget::Topic(_), None) => BTreeSet::new(),
            (ResolvedTarget::Group(group), _) if group.as_str() != GroupName::ALL => {
                self.group_rows(mesh_id, group, roster)
            }
            (ResolvedTarget::Group(_) | ResolvedTarget::Everyone, _) => {
                let all = roster.all_active();
                all.into_iter()
                    .map(|member| of_member(&member.id))
                    .collect()
            }
        };
        let is_direct = matches!(target, ResolvedTarget::Member(_));
        let mut recipients = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(member) = roster.active(&row.member_id) else {
                continue;
            };
            if !is_direct && member.id == own.id {
                continue;
            }
            match gets(member) {
                Delivered::Yes => recipients.push(row),
                Delivered::Dropped => self.count_dropped(),
                Delivered::Refused => {
                    self.count_dropped();
                    return Err(forbidden(
                        "the recipient takes no direct messages of this sender",
                    ));
                }
            }
        }
        let owner = match topic {
            Some(topic) => topic.value.id.clone(),
            None => format!("{mesh_id}/{}", destination.reference()),
        };
        Ok(Plan {
            mentions: mentioned(checked, &destination, roster, own),
            target: target.clone(),
            roster: Arc::clone(roster),
            topic: topic.clone(),
            recipients,
            is_history: topic.is_some() || !queues.is_empty(),
            queues,
            owner,
            sender_key: own.pubkey,
            sender_name: own.display_name.clone(),
        })
    }

    /// Members of a group get a row of their own. A session that joined it alone, without its member, gets one for itself.
    fn group_rows(
        &self,
        mesh_id: &str,
        group: &GroupName,
        roster: &Roster,
    ) -> BTreeSet<RecipientRow> {
        let is_within = |name: &str| GroupName::parse(name).is_ok_and(|name| name.is_within(group));
        let members = roster.all_active().into_iter();
        let members = members.filter(|member| member.groups.iter().any(|own| is_within(&own.name)));
        let mut rows: BTreeSet<RecipientRow> =
            members.map(|member| of_member(&member.id)).collect();
        let connected = self.inner.peers.in_group(mesh_id, group);
        let (of_members, sessions): (Vec<_>, Vec<_>) = connected
            .into_iter()
            .partition(|(_, session)| session.is_none());
        rows.extend(of_members.iter().map(|(member_id, _)| of_member(member_id)));
        for (member_id, session) in sessions {
            if !rows.contains(&of_member(&member_id)) {
                rows.insert(RecipientRow { member_id, session });
            }
        }
        rows
    }
}

/// The topic that a target names, by its id or its name.
const fn topic_of(target: &TargetSpec) -> Option<&String> {
    match target {
        TargetSpec::Topic(name) => Some(name),
        TargetSpec::Key(_) | TargetSpec::Group(_) | TargetSpec::Everyone | TargetSpec::Queue(_) => {
            None
        }
    }
}

fn of_member(id: &str) -> RecipientRow {
    RecipientRow {
        member_id: id.to_owned(),
        session: None,
    }
}

/// The members that the sender names, and in a body in clear those whose names follow an `@`.
fn mentioned(
    checked: &CheckedSend,
    destination: &Destination,
    roster: &Roster,
    own: &MeshMember,
) -> Vec<String> {
    let is_clear = destination.is_clear(checked.body_version);
    let body = checked.body.decoded().filter(|_| is_clear);
    let text = body.and_then(|body| String::from_utf8(body).ok());
    let has_text = text.as_ref().is_some_and(|text| text.contains('@'));
    if checked.mentions.is_empty() && !has_text {
        return Vec::new();
    }
    let names = |member: &MeshMember| {
        checked.mentions.iter().any(|mention| {
            let mention = mention.strip_prefix('@').unwrap_or(mention);
            *mention == member.id
                || mention.eq_ignore_ascii_case(&member.pubkey.to_string())
                || mention.to_lowercase() == member.display_name.to_lowercase()
        })
    };
    let in_text = |member: &MeshMember| {
        let text = text.as_deref().filter(|_| has_text);
        text.is_some_and(|text| mentions(text, &member.display_name))
    };
    let members = roster.all_active().into_iter();
    members
        .filter(|member| member.id != own.id && (names(member) || in_text(member)))
        .map(|member| member.id.clone())
        .collect()
}
