//! Owner and modes of the data directory and of its keys.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::DoctorFinding;
use crate::data_dir::DataDir;

/// Nobody else may enter or read.
const OTHERS: u32 = 0o077;
/// Nobody else may write; they may read the address.
const OTHERS_WRITE: u32 = 0o022;

/// What is open to others, and repaired if `fix` is set.
pub(super) fn modes(data: &DataDir, fix: bool) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let root = data.root();
    findings.extend(owner(root));
    findings.extend(mode(root, OTHERS_WRITE, fix));
    findings.extend(mode(&data.keys(), OTHERS, fix));
    let keys = fs::read_dir(data.keys()).into_iter().flatten().flatten();
    let mut keys: Vec<_> = keys.map(|key| key.path()).collect();
    keys.sort();
    for key in keys {
        findings.extend(mode(&key, OTHERS, fix));
    }
    findings
}

/// Another user's directory cannot be repaired from here.
fn owner(root: &Path) -> Option<DoctorFinding> {
    let own = rustix::process::geteuid().as_raw();
    let uid = fs::metadata(root).ok()?.uid();
    if uid == own || own == 0 {
        return None;
    }
    Some(DoctorFinding::error(
        "owner",
        format!("{} belongs to another user (uid {uid})", root.display()),
        "a server of this user could not write to it",
        format!(
            "run this as that user, or change it with: sudo chown -R {own} {}",
            root.display()
        ),
    ))
}

fn mode(path: &Path, forbidden: u32, fix: bool) -> Option<DoctorFinding> {
    let found = fs::symlink_metadata(path).ok()?;
    // The mode of a link says nothing, and changing that of its target is not safe.
    if found.is_symlink() {
        return None;
    }
    let mode = found.mode() & 0o7777;
    let wanted = mode & !forbidden;
    if mode == wanted {
        return None;
    }
    let shown = path.display();
    let mut finding = DoctorFinding::error(
        "mode",
        format!("{shown} has the mode {mode:04o}, which is open to other users"),
        "keys must be readable by their owner alone, and nobody else may replace files of the data directory",
        format!("consign doctor --fix, or: chmod {wanted:04o} {shown}"),
    );
    if fix {
        match fs::set_permissions(path, Permissions::from_mode(wanted)) {
            Ok(()) => {
                finding.fixed = true;
                finding.why = format!(
                    "its mode is {wanted:04o} now; if others could read a key, replace that key"
                );
            }
            Err(error) => finding.why = format!("its mode cannot be changed: {error}"),
        }
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_modes_are_found_and_repaired_and_sound_ones_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(&folder.path().join("data"));
        data.create().unwrap();
        let key = data.key_file("main");
        fs::write(&key, "secret").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        set(&key, 0o600).unwrap();
        assert!(modes(&data, false).is_empty());
        set(&key, 0o644).unwrap();
        set(data.root(), 0o777).unwrap();
        let found = modes(&data, false);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|finding| !finding.fixed), "{found:?}");
        let fixed = modes(&data, true);
        assert!(fixed.iter().all(|finding| finding.fixed), "{fixed:?}");
        assert!(modes(&data, false).is_empty());
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    }
}
