//! A broker on a new ledger, with a clock that tests move.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Clock, Engine, Operator, Options as EngineOptions, SealKey};
use consign_kernel::receipt::Signer;
use consign_mesh::broker::{
    Broker, BrokerError, BrokerSettings, DedupeRetention, Joined, NewInvite, NewMember, NewMesh,
};
use consign_mesh::id::{DisplayName, MeshSlug};
use consign_mesh::invite::InvitePayload;
use consign_mesh::keys::{MeshPrivateKey, MeshPublicKey};
use consign_mesh::role::{ClonePolicy, MemberRole};
use consign_testkit::clock::SimClock;
use consign_testkit::ledger::Ledger;

pub(crate) const URL: &str = "ws://127.0.0.1:7070/ws";

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) ledger: Ledger,
}

pub(crate) fn world() -> World {
    let clock = Arc::new(SimClock::default());
    let now: Arc<dyn Clock> = clock.clone();
    let ledger = Ledger::new(crate::backend(), now.clone());
    let engine = Engine::new(EngineOptions {
        store: ledger.store.clone(),
        clock: now,
        wall: clock.clone(),
        entropy: [1; 32],
        seal: SealKey::new([7; 32]),
        signer: Signer::from_seed(&[7; 32]),
        main_key: "ck_main".to_owned(),
        cleanup_interval: Duration::from_hours(1),
    });
    let settings = BrokerSettings::new(URL.to_owned());
    World {
        broker: Broker::new(engine, settings),
        clock,
        ledger,
    }
}

pub(crate) fn operator() -> Operator {
    Operator::vouched()
}

pub(crate) fn key(seed: u8) -> MeshPublicKey {
    MeshPrivateKey::from_seed(&[seed; 32]).public_key()
}

pub(crate) fn new_mesh(slug: &str) -> NewMesh {
    NewMesh {
        slug: MeshSlug::parse(slug).unwrap(),
        name: DisplayName::parse(slug).unwrap(),
        clone_policy: ClonePolicy::PreferNewest,
        dedupe: DedupeRetention::default(),
        message_days: 30,
    }
}

impl World {
    pub(crate) async fn mesh(&self, slug: &str) {
        let created = self.broker.create_mesh(operator(), new_mesh(slug)).await;
        created.unwrap();
    }

    pub(crate) async fn invite(&self, slug: &str, uses_max: u32) -> InvitePayload {
        let new = NewInvite {
            role: MemberRole::Member,
            uses_max,
            valid_for_s: 600,
        };
        self.broker.invite(operator(), slug, new).await.unwrap()
    }

    pub(crate) async fn join(
        &self,
        invite: &InvitePayload,
        pubkey: MeshPublicKey,
    ) -> Result<Joined, BrokerError> {
        let request = NewMember {
            token: invite.token(),
            payload: invite.clone(),
            pubkey,
            display_name: DisplayName::parse("guest").unwrap(),
        };
        self.broker.join(&request).await
    }
}
