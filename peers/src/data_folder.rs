//! The folder of the servers' files: new, on a real disk, and removed when the run ends, also by a signal.
//!
//! A file system in memory is refused: a sync costs nothing there, so every figure would be wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use consign_testkit::run_folder::RunFolder;

use crate::error::Error;

const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];

pub(crate) fn create(parent: &Path) -> Result<RunFolder, Error> {
    let shown = parent.display().to_string();
    let parent = parent.canonicalize().map_err(Error::io(&*shown))?;
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::io("/proc/self/mounts"))?;
    let kind = file_system_of(&mounts, &parent);
    if IN_MEMORY.contains(&kind) {
        return Err(Error::Program(format!(
            "{shown} is in memory ({kind}), where a sync costs nothing; name a folder on a disk with --dir"
        )));
    }
    let folder = RunFolder::make(&parent, "consign-peers-").map_err(Error::io(&*shown))?;
    let watch = folder.end_on_signal();
    watch.map_err(Error::io("watching for signals"))?;
    // Servers that refuse to run as root need access to their part of it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
        .map_err(Error::io(shown))?;
    Ok(folder)
}

/// The kind of file system of the deepest mount above `path`; of two on one point, the later covers the earlier.
fn file_system_of<'a>(mounts: &'a str, path: &Path) -> &'a str {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), kind))
    });
    let deepest = mounted.max_by_key(|(depth, _)| *depth);
    deepest.map_or("", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /var/tmp tmpfs rw 0 0\n/dev/b /var/tmp xfs rw 0 0\nx /var/tmpx y z 0 0\n";
        assert_eq!(file_system_of(mounts, Path::new("/var/tmp/a")), "xfs");
        assert_eq!(file_system_of(mounts, Path::new("/var")), "ext4");
        let covered = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(file_system_of(covered, Path::new("/tmp")), "tmpfs");
    }
}
