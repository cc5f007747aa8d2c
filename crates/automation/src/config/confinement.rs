//! `limits` and `sandbox` of a plugin: the resources and files that its processes may use.

use std::path::PathBuf;

use super::fields::SectionReader;
use super::node::NodeKind;
use crate::plugin::confine::{Confinement, ResourceLimits, Sandbox};

/// Reads both keys from the section of one plugin.
pub(super) fn read(plugin: &mut SectionReader<'_>) -> Confinement {
    Confinement {
        limits: limits(plugin.section("limits")),
        sandbox: sandbox(plugin),
    }
}

fn limits(mut fields: SectionReader<'_>) -> ResourceLimits {
    let mut count = |key| fields.count(key, 1).map(|found| found as u64);
    let open_files = count("open_files");
    let processes = count("processes");
    let limits = ResourceLimits {
        memory_bytes: fields.size("memory"),
        cpu: fields.duration("cpu"),
        open_files,
        processes,
        file_bytes: fields.size("file_size"),
    };
    fields.finish();
    limits
}

/// `true` requests a sandbox without additional paths.
fn sandbox(plugin: &mut SectionReader<'_>) -> Option<Sandbox> {
    const KEY: &str = "sandbox";
    if matches!(
        plugin.node(KEY)?.kind,
        NodeKind::Bool { .. } | NodeKind::Text(_)
    ) {
        return plugin.flag(KEY)?.then(Sandbox::default);
    }
    let mut fields = plugin.section(KEY);
    let sandbox = Sandbox {
        read: paths(&mut fields, "read"),
        write: paths(&mut fields, "write"),
        best_effort: fields.flag("best_effort").unwrap_or(false),
        ..Sandbox::default()
    };
    fields.finish();
    Some(sandbox)
}

fn paths(fields: &mut SectionReader<'_>, key: &'static str) -> Vec<PathBuf> {
    let paths = fields.texts(key).into_iter().map(PathBuf::from);
    let paths: Vec<PathBuf> = paths.collect();
    for path in paths.iter().filter(|path| !path.is_absolute()) {
        let name = fields.path_of(key);
        let message = format!("`{name}` has `{}`, which is not absolute", path.display());
        fields.error(&fields.position_of(key), message, "write an absolute path");
    }
    paths
}
