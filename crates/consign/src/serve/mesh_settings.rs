//! The variables of the mesh, read from a lookup function.
//!
//! Invariant: a variable that is set is usable, or the error names it.

use std::path::PathBuf;

use consign_mesh::broker::{BlobSettings, BrokerSettings};
use consign_mesh::limits::BLOB_BYTES_MAX;

use super::beam_settings::number;
use super::site_settings::UnusableSetting;

const SENDS_MAX: u64 = 100_000_000;
const MESH_BYTES_MAX: u64 = 1 << 50;

/// `base_url` is the address of this server, for invites where no variable names another one; `own_folder` is where files of
/// members are without a variable, if that is possible.
pub(super) fn read(
    lookup: impl Fn(&str) -> Option<String>,
    base_url: &str,
    own_folder: Option<PathBuf>,
) -> Result<BrokerSettings, UnusableSetting> {
    let filled = |name: &str| {
        let value = lookup(name).map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let url = match filled("MESH_URL") {
        Some(url) => checked_url(url)?,
        None => socket_url(base_url),
    };
    let mut settings = BrokerSettings::new(url);
    let sends = "MESH_SENDS_PER_MIN";
    if let Some(sends) = number(sends, filled(sends), 1, SENDS_MAX)? {
        settings.sends_per_minute = u32::try_from(sends).unwrap_or(u32::MAX);
    }
    let burst = "MESH_SEND_BURST";
    if let Some(burst) = number(burst, filled(burst), 1, SENDS_MAX)? {
        settings.send_burst = u32::try_from(burst).unwrap_or(u32::MAX);
    }
    let folder = filled("MESH_BLOB_DIR").map(PathBuf::from).or(own_folder);
    settings.blobs = folder.map(BlobSettings::new);
    let largest = "MESH_BLOB_BYTES_MAX";
    let bytes_max = number(largest, filled(largest), 1, BLOB_BYTES_MAX)?;
    if let (Some(blobs), Some(bytes_max)) = (&mut settings.blobs, bytes_max) {
        blobs.bytes_max = bytes_max;
    }
    let of_mesh = "MESH_BLOB_MESH_BYTES_MAX";
    let of_mesh = number(of_mesh, filled(of_mesh), 1, MESH_BYTES_MAX)?;
    if let (Some(blobs), Some(bytes_max)) = (&mut settings.blobs, of_mesh) {
        blobs.mesh_bytes_max = bytes_max;
    }
    let dedupe = "MESH_DEDUPE_ENFORCED";
    settings.dedupe_is_enforced = flag(dedupe, filled(dedupe).as_deref())?;
    Ok(settings)
}

/// `http` becomes `ws`, `https` becomes `wss`.
fn socket_url(base_url: &str) -> String {
    let rest = base_url.strip_prefix("http").unwrap_or(base_url);
    format!("ws{rest}/ws")
}

fn checked_url(url: String) -> Result<String, UnusableSetting> {
    let is_usable = ["ws://", "wss://"].iter().any(|scheme| {
        let rest = url.strip_prefix(scheme);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    }) && url.chars().all(|c| c.is_ascii_graphic() && c != '|');
    if is_usable {
        return Ok(url);
    }
    Err(UnusableSetting {
        name: "MESH_URL",
        why: "is not the URL of a WebSocket".into(),
        advice: "write the public address of this server, such as wss://mesh.example/ws",
    })
}

fn flag(name: &'static str, value: Option<&str>) -> Result<bool, UnusableSetting> {
    match value {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(UnusableSetting {
            name,
            why: "is neither true nor false".into(),
            advice: "correct it, or unset it for true",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<BrokerSettings, UnusableSetting> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        read(
            lookup,
            "http://127.0.0.1:7070",
            Some(PathBuf::from("data/mesh-blobs")),
        )
    }

    #[test]
    fn nothing_has_to_be_set() {
        let settings = of(&[]).unwrap();
        assert_eq!(settings.url, "ws://127.0.0.1:7070/ws");
        assert_eq!(
            (settings.sends_per_minute, settings.send_burst),
            (6_000, 1_000)
        );
        assert!(settings.dedupe_is_enforced);
        let blobs = settings.blobs.unwrap();
        assert_eq!(blobs.folder, PathBuf::from("data/mesh-blobs"));
        assert_eq!(blobs.bytes_max, BLOB_BYTES_MAX);
        assert_eq!(blobs.mesh_bytes_max, 10 << 30);
        assert_eq!(socket_url("https://[::1]:7070"), "wss://[::1]:7070/ws");
    }

    #[test]
    fn each_variable_has_its_effect_cm_143() {
        let settings = of(&[
            ("MESH_URL", "wss://mesh.example/ws"),
            ("MESH_SENDS_PER_MIN", "60"),
            ("MESH_SEND_BURST", "10"),
            ("MESH_DEDUPE_ENFORCED", "false"),
            ("MESH_BLOB_DIR", "/srv/blobs"),
            ("MESH_BLOB_BYTES_MAX", "1000"),
            ("MESH_BLOB_MESH_BYTES_MAX", "2000"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.url, "wss://mesh.example/ws");
        assert_eq!((settings.sends_per_minute, settings.send_burst), (60, 10));
        assert!(!settings.dedupe_is_enforced);
        let blobs = settings.blobs.unwrap();
        assert_eq!(blobs.folder, PathBuf::from("/srv/blobs"));
        assert_eq!((blobs.bytes_max, blobs.mesh_bytes_max), (1_000, 2_000));
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named() {
        for (name, value) in [
            ("MESH_URL", "http://mesh.example/ws"),
            ("MESH_URL", "ws:///ws"),
            ("MESH_URL", "ws://a|b/ws"),
            ("MESH_SENDS_PER_MIN", "0"),
            ("MESH_SEND_BURST", "many"),
            ("MESH_DEDUPE_ENFORCED", "off"),
        ] {
            assert_eq!(of(&[(name, value)]).unwrap_err().name, name, "{value}");
        }
    }
}
