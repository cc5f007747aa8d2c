//! The service that starts a daemon: a unit of systemd, or a property list of launchd.
//!
//! Invariant: a unit names absolute paths only, and nothing in a path or a slug can add a directive.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::config::ByteSize;
use crate::environment::HostEnvironment;
use crate::id::MeshSlug;

/// What CI prints instead of installing a service.
pub const CI_REFUSAL: &str = "Refusing to install persistent service in CI; ephemeral mode only.";
/// The limit of a daemon alone.
pub const MEMORY_MAX_DEFAULT: ByteSize = ByteSize(256_000_000);

/// Which manager runs the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceManager {
    Systemd,
    Launchd,
}

/// Who the service belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceScope {
    User,
    System,
}

/// What is installed.
#[derive(Debug, Clone)]
pub struct ServiceOptions<'a> {
    pub mesh: &'a MeshSlug,
    pub scope: ServiceScope,
    /// The program, as an absolute path.
    pub program: &'a Path,
    pub home: &'a Path,
    /// The user of a system service.
    pub user: Option<&'a str>,
    pub memory_max: ByteSize,
}

/// Why no service is installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    #[error("{CI_REFUSAL}")]
    Ci,
    #[error("{0} is not an absolute path without line breaks")]
    Path(PathBuf),
    #[error("a system service needs the name of its user")]
    NoUser,
}

/// A file to write, and the commands that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFile {
    pub path: PathBuf,
    pub text: String,
    /// Run in this order after the file was written.
    pub start: Vec<Vec<String>>,
    /// Run in this order before the file is removed.
    pub stop: Vec<Vec<String>>,
}

impl ServiceManager {
    /// The manager of this system.
    pub const fn of_system() -> Self {
        if cfg!(target_os = "macos") {
            Self::Launchd
        } else {
            Self::Systemd
        }
    }
}

/// Whether a service may be installed here: not in CI, unless the flag allows it.
pub const fn check_environment(
    environment: &HostEnvironment,
    allows_ci: bool,
) -> Result<(), ServiceError> {
    if environment.is_ci && !allows_ci {
        Err(ServiceError::Ci)
    } else {
        Ok(())
    }
}

impl ServiceOptions<'_> {
    pub fn file(&self, manager: ServiceManager) -> Result<ServiceFile, ServiceError> {
        for path in [self.program, self.home] {
            let text = path.to_str().filter(|text| !text.contains(['\n', '\r']));
            if text.is_none() || !path.is_absolute() {
                return Err(ServiceError::Path(path.to_owned()));
            }
        }
        let is_name = |user: &str| {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            !user.is_empty() && user.chars().all(is_plain)
        };
        if self.scope == ServiceScope::System && !self.user.is_some_and(is_name) {
            return Err(ServiceError::NoUser);
        }
        Ok(match manager {
            ServiceManager::Systemd => self.unit(),
            ServiceManager::Launchd => self.property_list(),
        })
    }

    fn unit(&self) -> ServiceFile {
        let name = format!("claudemesh-daemon-{}.service", self.mesh);
        let folder = match self.scope {
            ServiceScope::User => self.home.join(".config/systemd/user"),
            ServiceScope::System => PathBuf::from("/etc/systemd/system"),
        };
        let (user, target) = match self.scope {
            ServiceScope::User => (String::new(), "default.target"),
            ServiceScope::System => (
                format!("User={}\n", self.user.unwrap_or_default()),
                "multi-user.target",
            ),
        };
        let mesh = self.mesh;
        let program = unit_quoted(&self.program.to_string_lossy());
        let home = unit_quoted(&format!("HOME={}", self.home.display()));
        let writable = unit_quoted(&self.home.join(".claudemesh").to_string_lossy());
        let memory = self.memory_max.0;
        let text = format!(
            "[Unit]\n\
             Description=claudemesh daemon of {mesh}\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             StartLimitIntervalSec=5min\n\
             StartLimitBurst=5\n\
             \n\
             [Service]\n\
             Type=exec\n\
             {user}Environment={home}\n\
             ExecStart={program} daemon up --mesh {mesh} --foreground\n\
             Restart=on-failure\n\
             RestartSec=5s\n\
             MemoryMax={memory}\n\
             TasksMax=128\n\
             LimitNOFILE=4096\n\
             StandardOutput=journal\n\
             StandardError=journal\n\
             NoNewPrivileges=yes\n\
             PrivateTmp=yes\n\
             ProtectSystem=strict\n\
             ProtectHome=read-only\n\
             ReadWritePaths={writable}\n\
             \n\
             [Install]\n\
             WantedBy={target}\n"
        );
        let command = |words: &[&str]| {
            let mut command = vec!["systemctl".to_owned()];
            if self.scope == ServiceScope::User {
                command.push("--user".to_owned());
            }
            command.extend(words.iter().map(|&word| word.to_owned()));
            command
        };
        ServiceFile {
            path: folder.join(&name),
            text,
            start: vec![
                command(&["daemon-reload"]),
                command(&["enable", "--now", &name]),
            ],
            stop: vec![command(&["disable", "--now", &name])],
        }
    }

    fn property_list(&self) -> ServiceFile {
        let label = format!("com.claudemesh.daemon.{}", self.mesh);
        let folder = match self.scope {
            ServiceScope::User => self.home.join("Library/LaunchAgents"),
            ServiceScope::System => PathBuf::from("/Library/LaunchDaemons"),
        };
        let user = match self.user.filter(|_| self.scope == ServiceScope::System) {
            Some(user) => format!("  <key>UserName</key>\n  <string>{user}</string>\n"),
            None => String::new(),
        };
        let program = xml_escaped(&self.program.to_string_lossy());
        let home = xml_escaped(&self.home.to_string_lossy());
        let mesh = self.mesh;
        let memory = self.memory_max.0;
        let text = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{label}</string>
{user}  <key>ProgramArguments</key>
  <array>
    <string>{program}</string>
    <string>daemon</string>
    <string>up</string>
    <string>--mesh</string>
    <string>{mesh}</string>
    <string>--foreground</string>
  </array>
  <key>EnvironmentVariables</key>
  <dict>
    <key>HOME</key>
    <string>{home}</string>
  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>5</integer>
  <key>HardResourceLimits</key>
  <dict>
    <key>NumberOfFiles</key>
    <integer>4096</integer>
    <key>NumberOfProcesses</key>
    <integer>128</integer>
    <key>ResidentSetSize</key>
    <integer>{memory}</integer>
  </dict>
</dict>
</plist>
"#
        );
        let path = folder.join(format!("{label}.plist"));
        let shown = path.to_string_lossy().into_owned();
        let command = |word: &str| vec!["launchctl".to_owned(), word.to_owned(), shown.clone()];
        ServiceFile {
            start: vec![command("load")],
            stop: vec![command("unload")],
            path,
            text,
        }
    }
}

/// A word of a unit file: quoted, with its specifiers and variables taken literally.
fn unit_quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    format!("\"{escaped}\"")
}

fn xml_escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
