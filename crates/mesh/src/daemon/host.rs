//! Reads what identifies this machine: the id of its system, and its network interfaces.
//!
//! What cannot be read is absent; [`super::host_check`] decides what that means. Programs of the system are asked on macOS and
//! the BSDs only, where no file has the answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host_fingerprint::{NetworkInterface, stable_mac};

/// Where the files of the system are: `/`, or a folder of a test.
#[derive(Debug, Clone)]
pub struct MachineRoot(PathBuf);

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// With the prefix of the system.
    pub host_id: Option<String>,
    pub stable_mac: Option<String>,
}

impl Default for MachineRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl MachineRoot {
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    pub fn read(&self) -> Machine {
        let (host_id, interfaces) = if cfg!(target_os = "macos") {
            let tree = output("ioreg", &["-rd1", "-c", "IOPlatformExpertDevice"]);
            let id = platform_uuid(&tree).map(|id| format!("darwin:{id}"));
            (id, listed_interfaces(&output("ifconfig", &["-a"])))
        } else if cfg!(target_os = "linux") {
            (self.linux_id(), self.linux_interfaces())
        } else {
            let id = output("sysctl", &["-n", "kern.hostuuid"]);
            let id = Some(id.trim()).filter(|id| !id.is_empty());
            let id = id.map(|id| format!("bsd:{id}"));
            (id, listed_interfaces(&output("ifconfig", &["-a"])))
        };
        Machine {
            host_id,
            stable_mac: stable_mac(&interfaces),
        }
    }

    fn linux_id(&self) -> Option<String> {
        let files = ["etc/machine-id", "var/lib/dbus/machine-id"];
        files.iter().find_map(|file| {
            let text = fs::read_to_string(self.0.join(file)).ok()?;
            // systemd writes this word before the first start of an image.
            let id = text.trim();
            let is_id = !id.is_empty() && id != "uninitialized";
            is_id.then(|| format!("linux:{id}"))
        })
    }

    fn linux_interfaces(&self) -> Vec<NetworkInterface> {
        let folder = self.0.join("sys/class/net");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let mac = mac_of(&entry.path())?;
                Some(NetworkInterface { name, mac })
            })
            .collect()
    }
}

fn mac_of(interface: &Path) -> Option<[u8; 6]> {
    parse_mac(fs::read_to_string(interface.join("address")).ok()?.trim())
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// The output of a program; empty if it does not run.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// The id in the output of `ioreg`: `"IOPlatformUUID" = "..."`.
fn platform_uuid(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("IOPlatformUUID"))?;
    let id = line.split('"').nth(3)?;
    (!id.is_empty()).then(|| id.to_owned())
}

/// The interfaces in the output of `ifconfig`: a name at the begin of a line, `ether` and an address on a line below it.
fn listed_interfaces(text: &str) -> Vec<NetworkInterface> {
    let mut name = "";
    let mut interfaces = Vec::new();
    for line in text.lines() {
        if let Some((first, _)) = line.split_once(':')
            && !line.starts_with(char::is_whitespace)
        {
            name = first;
        }
        let address = line.trim().strip_prefix("ether ");
        let word = address.and_then(|rest| rest.split_whitespace().next());
        if let Some(mac) = word.and_then(parse_mac) {
            let name = name.to_owned();
            interfaces.push(NetworkInterface { name, mac });
        }
    }
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn cm_017_cm_018_the_machine_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = MachineRoot::at(folder.path());
        let unknown = Machine {
            host_id: None,
            stable_mac: None,
        };
        assert_eq!(root.read(), unknown);
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("var/lib/dbus/machine-id", "bbbb\n");
        write("sys/class/net/docker0/address", "10:00:00:00:00:01\n");
        write("sys/class/net/eth1/address", "10:00:00:00:00:03\n");
        write("sys/class/net/eth0/address", "02:00:00:00:00:02\n");
        write("sys/class/net/sit0/address", "0.0.0.0\n");
        let read = root.read();
        assert_eq!(read.host_id.as_deref(), Some("linux:bbbb"));
        assert_eq!(read.stable_mac.as_deref(), Some("10:00:00:00:00:03"));
        write("etc/machine-id", "uninitialized\n");
        assert_eq!(root.read(), read);
        write("etc/machine-id", "aaaa\n");
        assert_eq!(root.read().host_id.as_deref(), Some("linux:aaaa"));
    }

    #[test]
    fn outputs_of_other_systems_are_understood() {
        let tree = "    {\n      \"IOPlatformUUID\" = \"1B2C-3D\"\n      \"model\" = <\"x\">\n";
        assert_eq!(platform_uuid(tree).as_deref(), Some("1B2C-3D"));
        assert_eq!(platform_uuid("none"), None);
        let listed = "lo0: flags=8049<UP> mtu 16384\n\tinet 127.0.0.1\nen0: flags=8863<UP>\n\tether 10:ff:00:00:00:0a \n\tinet6 fe80::1%en0\nawdl0: flags=1\n\tether 12:00:00:00:00:0b\n";
        let interfaces = listed_interfaces(listed);
        let names: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["en0", "awdl0"]);
        assert_eq!(
            stable_mac(&interfaces).as_deref(),
            Some("10:ff:00:00:00:0a")
        );
    }
}
