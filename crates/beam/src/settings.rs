//! The settings of a directory and its message bus, as plain values. The binary reads them from the environment.

use std::time::Duration;

use consign_kernel::ids::SECOND_US;
use consign_web::credentials::SecretDigest;
use consign_web::secret_text::SecretText;

use crate::catalog::{self, Catalog};
use crate::outbound::{AddressGuard, AllowedTargets};

/// Intents per minute and sender.
pub const RATE_PER_MINUTE_DEFAULT: u32 = 60;
/// Messages per minute and sender on the bus.
pub const BUS_RATE_PER_MINUTE_DEFAULT: u32 = 10;
/// Bytes per minute and address of another machine that may be stored.
pub const WRITE_BYTES_PER_MINUTE_DEFAULT: u64 = 4 * 1024 * 1024;
/// Agents up to which other machines may register further ones.
pub const AGENTS_MAX_DEFAULT: u64 = 100_000;
pub const RETRY_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
pub const RECOVERY_SWEEP_DEFAULT: Duration = Duration::from_secs(5);
/// How long a sender over HTTP or federation waits for a result.
const HTTP_RESULT_TIMEOUT: Duration = Duration::from_mins(1);
/// The same over a WebSocket.
const SOCKET_RESULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct BeamSettings {
    /// The public URL of this directory, without a slash at its end.
    pub directory_url: String,
    pub roles: Roles,
    /// Signs the sessions of operators.
    pub session_secret: SecretText,
    /// What other directories present. Without it, none is accepted.
    pub federation_secret: Option<SecretText>,
    pub rate_per_minute: u32,
    /// The result timeout on every transport, if it is set.
    pub result_timeout: Option<Duration>,
    pub recovery_sweep: Duration,
    /// Which addresses this server may call.
    pub guard: AddressGuard,
    /// The routes that the protocol leaves open are open to all addresses, not only to this machine.
    pub open: bool,
    /// Rate limits of public routes per address.
    pub public_limits: bool,
    /// How many bytes of registrations, intents and the like an address of another machine may send in a minute; zero for no limit.
    pub write_bytes_per_minute: u64,
    /// With so many agents, other machines register no further ones; zero for no limit.
    pub agents_max: u64,
    /// The list of agents is for other directories only.
    pub private: bool,
    pub catalog: Catalog,
    pub bus: BusSettings,
}

/// The e-mail addresses of operators.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    pub admins: Vec<String>,
    pub operators: Vec<String>,
    pub viewers: Vec<String>,
}

#[derive(Debug)]
pub struct BusSettings {
    /// Without a key, the bus is open to this machine and closed to others.
    pub api_key: Option<SecretDigest>,
    pub stats_public: bool,
    /// Messages of the organisations `test` and `demo` are removed at each start.
    pub clean_test_data: bool,
    /// The identities for which the bus signs.
    pub identities: Vec<BusIdentity>,
    pub rate_per_minute: u32,
    /// Another directory that delivers, over HTTP.
    pub remote_directory: Option<String>,
    pub retry_interval: Duration,
    /// The length of a second of the retry schedule, shorter in tests.
    pub retry_second_us: i64,
    /// Web pages of these origins may use the bus.
    pub allowed_origins: Vec<String>,
}

/// A sender for which the bus signs.
#[derive(Clone, Debug)]
pub struct BusIdentity {
    pub beam_id: String,
    /// PKCS#8 as base64.
    pub private_key: SecretText,
}

impl BeamSettings {
    pub fn new(directory_url: String, session_secret: SecretText) -> Self {
        Self {
            directory_url,
            roles: Roles::default(),
            session_secret,
            federation_secret: None,
            rate_per_minute: RATE_PER_MINUTE_DEFAULT,
            result_timeout: None,
            recovery_sweep: RECOVERY_SWEEP_DEFAULT,
            guard: AddressGuard::new(AllowedTargets::default()),
            open: false,
            public_limits: false,
            write_bytes_per_minute: WRITE_BYTES_PER_MINUTE_DEFAULT,
            agents_max: AGENTS_MAX_DEFAULT,
            private: false,
            catalog: catalog::BUILT_IN.clone(),
            bus: BusSettings {
                api_key: None,
                stats_public: false,
                clean_test_data: false,
                identities: Vec::new(),
                rate_per_minute: BUS_RATE_PER_MINUTE_DEFAULT,
                remote_directory: None,
                retry_interval: RETRY_INTERVAL_DEFAULT,
                retry_second_us: SECOND_US,
                allowed_origins: Vec::new(),
            },
        }
    }

    /// How long a sender over HTTP or federation waits for a result.
    pub fn http_result_timeout(&self) -> Duration {
        self.result_timeout.unwrap_or(HTTP_RESULT_TIMEOUT)
    }

    pub fn socket_result_timeout(&self) -> Duration {
        self.result_timeout.unwrap_or(SOCKET_RESULT_TIMEOUT)
    }
}
