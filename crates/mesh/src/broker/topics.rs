//! Topics of a mesh: create, find, join and leave them.
//!
//! Invariant: a commit that relies on the members of a topic expects the version of its record, so a post is never accepted
//! for a member that has left. Topics that were read are kept between messages for that reason.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_engine::{Error, UnitOfWork, Versioned};
use consign_kernel::record::Kind;

use super::records::{TopicMemberRecord, TopicRecord};
use super::{Broker, BrokerError, PAGE, was_changed};
use crate::id::{SummaryText, TopicName};
use crate::limits::TOPICS_PER_MESH_MAX;
use crate::role::{TopicRole, TopicVisibility};

/// Every new member joins it.
pub(super) const GENERAL: &str = "general";
/// Topics that are kept; with more in use, they are read again.
const KEPT_MAX: usize = 10_000;

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic {
    pub name: TopicName,
    pub description: Option<SummaryText>,
    pub visibility: TopicVisibility,
}

/// The topics that were read last, by mesh and id, and the ids by mesh and name.
#[derive(Debug, Default)]
pub(super) struct KeptTopics(Mutex<TopicMaps>);

#[derive(Debug, Default)]
struct TopicMaps {
    topics: HashMap<(String, String), Arc<Versioned<TopicRecord>>>,
    ids: HashMap<(String, String), String>,
}

impl KeptTopics {
    fn maps(&self) -> MutexGuard<'_, TopicMaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, mesh_id: &str, name_or_id: &str) -> Option<Arc<Versioned<TopicRecord>>> {
        let maps = self.maps();
        let key = (mesh_id.to_owned(), name_or_id.to_owned());
        // A name that looks like an id is not kept as one: the topic with that id may not have been read yet.
        let id = maps.ids.get(&key).filter(|_| !is_like_id(name_or_id));
        let by_id = (mesh_id.to_owned(), id.cloned().unwrap_or(key.1));
        maps.topics.get(&by_id).cloned()
    }

    fn keep(&self, topic: &Arc<Versioned<TopicRecord>>) {
        let TopicRecord {
            id, mesh_id, name, ..
        } = &topic.value;
        let mut maps = self.maps();
        if maps.topics.len() >= KEPT_MAX {
            *maps = TopicMaps::default();
        }
        let by_id = (mesh_id.clone(), id.clone());
        maps.ids
            .insert((mesh_id.clone(), name.to_string()), id.clone());
        maps.topics.insert(by_id, Arc::clone(topic));
    }
}

/// Of an id that this broker assigned.
const ID_DIGITS: usize = 32;

fn is_like_id(reference: &str) -> bool {
    reference.len() == ID_DIGITS && reference.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A topic without its `#`.
pub(super) fn bare(reference: &str) -> &str {
    reference.strip_prefix('#').unwrap_or(reference)
}

impl Broker {
    /// The topic with this id or name as of some moment: good for a commit that expects its version.
    pub(super) async fn kept_topic(
        &self,
        mesh_id: &str,
        reference: &str,
    ) -> Result<Option<Arc<Versioned<TopicRecord>>>, Error> {
        match self.inner.topics.find(mesh_id, bare(reference)) {
            Some(topic) => Ok(Some(topic)),
            None => self.current_topic(mesh_id, reference).await,
        }
    }

    /// The topic with this id or name as of now. An id is looked up first, so that no topic takes the posts of another one by
    /// its name.
    pub(super) async fn current_topic(
        &self,
        mesh_id: &str,
        reference: &str,
    ) -> Result<Option<Arc<Versioned<TopicRecord>>>, Error> {
        let reference = bare(reference);
        if is_like_id(reference)
            && let Some(topic) = self.topic_with_id(mesh_id, reference).await?
        {
            return Ok(Some(topic));
        }
        self.topic_named(mesh_id, reference).await
    }

    async fn topic_named(
        &self,
        mesh_id: &str,
        name: &str,
    ) -> Result<Option<Arc<Versioned<TopicRecord>>>, Error> {
        let by_name = TopicRecord::name_key(mesh_id, name);
        match self.engine().load::<String>(by_name).await? {
            Some(id) => self.topic_with_id(mesh_id, &id.value).await,
            None => Ok(None),
        }
    }

    async fn topic_with_id(
        &self,
        mesh_id: &str,
        id: &str,
    ) -> Result<Option<Arc<Versioned<TopicRecord>>>, Error> {
        let found = self.engine().load(TopicRecord::key(mesh_id, id)).await?;
        let found: Option<Arc<Versioned<TopicRecord>>> = found.map(Arc::new);
        if let Some(topic) = &found {
            self.inner.topics.keep(topic);
        }
        Ok(found)
    }

    /// The topic with this id or name.
    pub async fn topic(
        &self,
        mesh_id: &str,
        reference: &str,
    ) -> Result<Option<TopicRecord>, BrokerError> {
        let found = self.current_topic(mesh_id, reference).await?;
        Ok(found.map(|topic| topic.value.clone()))
    }

    /// All topics of a mesh, oldest first.
    pub async fn topics(&self, mesh_id: &str) -> Result<Vec<TopicRecord>, BrokerError> {
        let mut topics: Vec<TopicRecord> = Vec::new();
        loop {
            let after = topics.last().map_or("", |last| &last.id).to_owned();
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshTopic, mesh_id, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                topics.push(Versioned::read(record)?.value);
            }
            if is_last {
                return Ok(topics);
            }
        }
    }

    /// Creates a topic whose creator leads it. Returns the topic that has the name, and whether it is new; an existing one
    /// stays as it is.
    pub async fn create_topic(
        &self,
        mesh_id: &str,
        creator: &str,
        new: NewTopic,
    ) -> Result<(TopicRecord, bool), BrokerError> {
        let now = self.wall_ms();
        if let Some(found) = self.topic_named(mesh_id, new.name.as_str()).await? {
            return Ok((found.value.clone(), false));
        }
        if self.topics(mesh_id).await?.len() >= TOPICS_PER_MESH_MAX {
            return Err(BrokerError::TopicsFull);
        }
        let topic = TopicRecord {
            id: self.new_id(),
            mesh_id: mesh_id.to_owned(),
            name: new.name,
            description: new.description.map(String::from),
            visibility: new.visibility,
            created_at: now,
            created_by: Some(creator.to_owned()),
            members: vec![TopicMemberRecord {
                member_id: creator.to_owned(),
                role: TopicRole::Lead,
                joined_at: now,
            }],
            subscriptions: Vec::new(),
        };
        let mut unit = UnitOfWork::default();
        put_new(&mut unit, &topic);
        match self.engine().commit(unit).await {
            Ok(_) => Ok((topic, true)),
            Err(error) if was_changed(&error) => {
                let found = self.topic_named(mesh_id, topic.name.as_str()).await?;
                let found = found.map(|found| (found.value.clone(), false));
                found.ok_or(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a member to a topic, or changes its role. Nobody makes itself the lead of a topic.
    pub async fn join_topic(
        &self,
        mesh_id: &str,
        reference: &str,
        member_id: &str,
        role: Option<TopicRole>,
    ) -> Result<(), BrokerError> {
        let now = self.wall_ms();
        self.change_topic(mesh_id, reference, |topic| {
            let mut members = topic.members.iter_mut();
            let asked = role.filter(|role| *role != TopicRole::Lead);
            match members.find(|member| member.member_id == member_id) {
                Some(member) => member.role = asked.unwrap_or(member.role),
                None => topic.members.push(TopicMemberRecord {
                    member_id: member_id.to_owned(),
                    role: asked.unwrap_or(TopicRole::Member),
                    joined_at: now,
                }),
            }
            Ok(())
        })
        .await
    }

    /// Removes a member from a topic. One that is not in it stays so.
    pub async fn leave_topic(
        &self,
        mesh_id: &str,
        reference: &str,
        member_id: &str,
    ) -> Result<(), BrokerError> {
        self.change_topic(mesh_id, reference, |topic| {
            topic.members.retain(|member| member.member_id != member_id);
            Ok(())
        })
        .await
    }

    pub(super) async fn change_topic(
        &self,
        mesh_id: &str,
        reference: &str,
        mut change: impl FnMut(&mut TopicRecord) -> Result<(), BrokerError>,
    ) -> Result<(), BrokerError> {
        let missing = || BrokerError::NoSuchTopic(bare(reference).to_owned());
        let topic = self.current_topic(mesh_id, reference).await?;
        let key = topic.ok_or_else(missing)?.key.clone();
        self.engine()
            .update(key, |stored: &mut Option<TopicRecord>| {
                change(stored.as_mut().ok_or_else(missing)?)
            })
            .await?;
        // The next post reads it anew.
        self.current_topic(mesh_id, reference).await?;
        Ok(())
    }

    /// Adds the step by which a new member joins `general`, which is created with the first member.
    pub(super) async fn join_general(
        &self,
        unit: &mut UnitOfWork,
        mesh_id: &str,
        member_id: &str,
    ) -> Result<(), Error> {
        let now = self.wall_ms();
        let member = TopicMemberRecord {
            member_id: member_id.to_owned(),
            role: TopicRole::Member,
            joined_at: now,
        };
        if let Some(topic) = self.current_topic(mesh_id, GENERAL).await? {
            let mut topic = Versioned::clone(&topic);
            topic.value.members.push(member);
            unit.replace(&topic);
            return Ok(());
        }
        let name = TopicName::parse(GENERAL)
            .map_err(|error| Error::Internal(format!("{GENERAL} is no topic name: {error}")))?;
        let topic = TopicRecord {
            id: self.new_id(),
            mesh_id: mesh_id.to_owned(),
            name,
            description: None,
            visibility: TopicVisibility::Public,
            created_at: now,
            created_by: None,
            members: vec![member],
            subscriptions: Vec::new(),
        };
        put_new(unit, &topic);
        Ok(())
    }

    /// Notes that a member has read a topic up to now.
    pub async fn mark_topic_read(
        &self,
        mesh_id: &str,
        reference: &str,
        member_id: &str,
    ) -> Result<(), BrokerError> {
        let topic = self.current_topic(mesh_id, reference).await?;
        let topic = topic.ok_or_else(|| BrokerError::NoSuchTopic(bare(reference).to_owned()))?;
        let key = TopicRecord::read_key(&topic.value.id, member_id);
        let put = consign_engine::new_put(key, &self.wall_ms());
        self.engine().put(put).await?;
        Ok(())
    }

    /// When members have read a topic last, by member, in milliseconds.
    pub async fn topic_reads(&self, topic_id: &str) -> Result<HashMap<String, i64>, BrokerError> {
        let (mut reads, mut after) = (HashMap::new(), String::new());
        loop {
            let engine = self.engine();
            let page = engine
                .records(Kind::MeshTopicRead, topic_id, &after, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            for record in page {
                after.clone_from(&record.key.name);
                let member = record.key.name.clone();
                reads.insert(member, Versioned::<i64>::read(record)?.value);
            }
            if is_last {
                return Ok(reads);
            }
        }
    }
}

fn put_new(unit: &mut UnitOfWork, topic: &TopicRecord) {
    let name = TopicRecord::name_key(&topic.mesh_id, topic.name.as_str());
    unit.expect(name.clone(), 0);
    unit.put(name, &topic.id);
    unit.put(TopicRecord::key(&topic.mesh_id, &topic.id), topic);
}
