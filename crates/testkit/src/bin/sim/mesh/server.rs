//! The broker on its machine, with the mesh and its members.

use std::time::Duration;

use consign_engine::{Engine, Operator};
use consign_mesh::broker::{
    Broker, BrokerError, BrokerNode, BrokerSettings, DedupeRetention, NewInvite, NewMember, NewMesh,
};
use consign_mesh::id::{DisplayName, MeshSlug};
use consign_mesh::keys::MeshPublicKey;
use consign_mesh::role::{ClonePolicy, MemberRole};
use consign_testkit::mesh_members::{Membership, TestMember};

const SLUG: &str = "simulated";
/// How long a recipient may take before a message is delivered again.
const DELIVERY_LEASE: Duration = Duration::from_secs(3);
const INVITE_S: u64 = 3_600;

/// The members of a simulation.
#[derive(Debug)]
pub(crate) struct SimMembers {
    /// Sends through an outbox.
    pub(crate) sender: TestMember,
    pub(crate) recipient: TestMember,
    /// Sends without an outbox, also under ids of others.
    pub(crate) stranger: TestMember,
}

/// What the broker assigned to them.
#[derive(Clone, Debug)]
pub(crate) struct SimMemberships {
    pub(crate) sender: Membership,
    pub(crate) recipient: Membership,
    pub(crate) stranger: Membership,
}

impl SimMembers {
    pub(crate) fn new() -> Self {
        Self {
            sender: TestMember::new("sender", 1),
            recipient: TestMember::new("recipient", 2),
            stranger: TestMember::new("stranger", 3),
        }
    }
}

pub(crate) fn slug() -> MeshSlug {
    MeshSlug::parse(SLUG).expect("letters are a slug")
}

/// The broker over the engine of a process, not yet recovered.
pub(crate) fn open(engine: &Engine, starts: u64) -> Broker {
    let mut settings = BrokerSettings::new("ws://simulated/ws".to_owned());
    // The simulation is not about the rates.
    settings.sends_per_minute = u32::MAX;
    settings.send_burst = u32::MAX;
    settings.delivery_lease = DELIVERY_LEASE;
    settings.node = BrokerNode {
        id: 1,
        name: "node".to_owned(),
        start: starts.to_string(),
        shared: false,
    };
    Broker::new(engine.clone(), settings)
}

/// Creates the mesh, and lets the members with these keys join it.
pub(crate) async fn set_up(
    broker: Broker,
    keys: [MeshPublicKey; 3],
) -> Result<SimMemberships, BrokerError> {
    let mesh = NewMesh {
        slug: slug(),
        name: name(SLUG),
        clone_policy: ClonePolicy::PreferNewest,
        dedupe: DedupeRetention::default(),
        message_days: 30,
    };
    let operator = Operator::vouched();
    let mesh = broker.create_mesh(operator, mesh).await?;
    let invite = NewInvite {
        role: MemberRole::Member,
        uses_max: 3,
        valid_for_s: INVITE_S,
    };
    let operator = Operator::vouched();
    let invite = broker.invite(operator, SLUG, invite).await?;
    let mut memberships = Vec::new();
    for pubkey in keys {
        let member = NewMember {
            token: invite.token(),
            payload: invite.clone(),
            pubkey,
            display_name: name("member"),
        };
        memberships.push(Membership {
            mesh_id: mesh.id.clone(),
            member_id: broker.join(&member).await?.member_id,
        });
    }
    let [sender, recipient, stranger] =
        <[Membership; 3]>::try_from(memberships).expect("every key has joined");
    Ok(SimMemberships {
        sender,
        recipient,
        stranger,
    })
}

fn name(text: &str) -> DisplayName {
    DisplayName::parse(text).expect("letters are a name")
}
