//! The server process on the simulated machine: Beam with its worker, and the sockets of the recipients.

use std::time::Duration;

use consign_beam::directory::records::{AclList, AclRule, Agent, AgentKey};
use consign_beam::http::serve_agent;
use consign_beam::service::{Beam, BeamNode};
use consign_beam::settings::{BeamSettings, BusIdentity};
use consign_engine::{Engine, Error, new_put};
use consign_testkit::beam_agents::{INTENT_TYPES, TestAgent};
use consign_web::secret_text::SecretText;
use consign_web::websocket::{InMemoryClient, Options};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a sender waits for a result.
pub(crate) const RESULT_TIMEOUT: Duration = Duration::from_millis(800);
/// The worker of the bus looks for due messages this often.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// A second of the retry schedule: the first retry is due after about 0.6 s.
const RETRY_SECOND_US: i64 = 20_000;
/// Intents without a relay are ended this often.
const RECOVERY_SWEEP: Duration = Duration::from_millis(50);
/// Tests are not about the rates.
const RATE: u32 = u32::MAX;

pub(crate) struct SimServer {
    pub(crate) beam: Beam,
    worker: JoinHandle<()>,
    sweep: JoinHandle<()>,
    stopping: watch::Sender<bool>,
}

impl SimServer {
    /// A process that has recovered what an earlier one left.
    pub(crate) fn start(beam: Beam) -> Self {
        let (stopping, stops) = watch::channel(false);
        Self {
            worker: tokio::spawn(beam.clone().run_bus(stops)),
            sweep: tokio::spawn(beam.clone().sweep_unwaited_forever()),
            beam,
            stopping,
        }
    }

    /// The worker ends without another step. Relays may still run, but their store does not answer and nothing reads
    /// their sockets.
    pub(crate) fn kill(&self) {
        self.worker.abort();
        self.sweep.abort();
        self.stopping.send_replace(true);
    }

    pub(crate) fn connect(&self, agent: &TestAgent) -> InMemoryClient {
        let (client, sender, messages) = InMemoryClient::connect(Options::new());
        let (beam, agent) = (self.beam.clone(), agent_record(agent));
        tokio::spawn(serve_agent(beam, agent, false, None, sender, messages));
        client
    }
}

/// Beam over the engine of a process, not yet recovered.
pub(crate) fn open(engine: &Engine, starts: u64, bus_sender: &TestAgent) -> Beam {
    let secret = SecretText::new("a-session-secret-of-the-simulation".to_owned());
    let mut settings = BeamSettings::new("http://simulated".to_owned(), secret);
    settings.rate_per_minute = RATE;
    settings.result_timeout = Some(RESULT_TIMEOUT);
    settings.recovery_sweep = RECOVERY_SWEEP;
    settings.bus.rate_per_minute = RATE;
    settings.bus.retry_interval = RETRY_INTERVAL;
    settings.bus.retry_second_us = RETRY_SECOND_US;
    settings.bus.identities = vec![BusIdentity {
        beam_id: bus_sender.beam_id.clone(),
        private_key: SecretText::new(bus_sender.private_key()),
    }];
    let node = BeamNode {
        id: 1,
        name: "node".to_owned(),
        start: starts.to_string(),
        shared: false,
    };
    Beam::new(engine.clone(), settings, node).expect("no certificate file is configured")
}

/// Stores the agents. The recipients accept every intent of every sender.
pub(crate) async fn store_agents(engine: Engine, agents: Vec<Agent>) -> Result<(), Error> {
    for agent in agents {
        let key = Agent::key(&agent.beam_id);
        engine.put(new_put(key, &agent)).await?;
        let rules = INTENT_TYPES.iter().map(|intent_type| AclRule {
            id: 1,
            intent_type: (*intent_type).to_owned(),
            allowed_from: "*".to_owned(),
            created_at: 0,
        });
        let list = AclList {
            rules: rules.collect(),
        };
        let key = AclList::key(&agent.beam_id);
        engine.put(new_put(key, &list)).await?;
    }
    Ok(())
}

pub(crate) fn agent_record(agent: &TestAgent) -> Agent {
    Agent {
        beam_id: agent.beam_id.clone(),
        display_name: agent.beam_id.clone(),
        verification_tier: "basic".to_owned(),
        visibility: "unlisted".to_owned(),
        keys: vec![AgentKey {
            id: 1,
            public_key: agent.public_key(),
            created_at: 0,
            revoked_at: None,
        }],
        ..Agent::default()
    }
}
