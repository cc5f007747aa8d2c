//! Merges a later file into the earlier ones.
//!
//! A later value replaces an earlier one, even if it is `false`; an empty one does not. Lists are concatenated. A plugin is
//! replaced as a whole, so that no setting of an earlier file survives in a plugin that another file defines.

use super::node::{ConfigNode, MapEntry, NodeKind};

/// Merges one file into the known tree.
pub(super) fn merge_file(known: &mut ConfigNode, file: ConfigNode) {
    known.is_filled |= file.is_filled;
    let NodeKind::Map(entries) = file.kind else {
        return;
    };
    for entry in entries {
        match entry.key.as_str() {
            "include" | "environment_vars" => {}
            "webhooks" => merge_entry(known, nested_webhooks(entry), &merge),
            "plugins" => merge_entry(known, entry, &|plugins, later| {
                merge_maps(plugins, later, &|plugin, later| *plugin = later);
            }),
            _ => merge_entry(known, entry, &merge),
        }
    }
}

fn merge(known: &mut ConfigNode, later: ConfigNode) {
    let ConfigNode {
        at,
        kind,
        is_filled,
    } = later;
    match (&mut known.kind, kind) {
        (NodeKind::List(items), NodeKind::List(more)) => {
            known.is_filled |= is_filled;
            items.extend(more);
        }
        (NodeKind::Map(_), kind @ NodeKind::Map(_)) => {
            let later = ConfigNode {
                at,
                kind,
                is_filled,
            };
            merge_maps(known, later, &merge);
        }
        (_, kind) => {
            let later = ConfigNode {
                at,
                kind,
                is_filled,
            };
            if !later.is_empty() {
                *known = later;
            }
        }
    }
}

type MergeRule<'a> = &'a dyn Fn(&mut ConfigNode, ConfigNode);

fn merge_maps(known: &mut ConfigNode, later: ConfigNode, rule: MergeRule<'_>) {
    match later {
        ConfigNode {
            kind: NodeKind::Map(entries),
            is_filled,
            ..
        } if matches!(known.kind, NodeKind::Map(_)) => {
            known.is_filled |= is_filled;
            for entry in entries {
                merge_entry(known, entry, rule);
            }
        }
        // One side has the wrong kind: keep the later one; reading it reports the problem.
        later if !later.is_empty() => *known = later,
        _ => {}
    }
}

fn merge_entry(known: &mut ConfigNode, entry: MapEntry, rule: MergeRule<'_>) {
    let NodeKind::Map(entries) = &mut known.kind else {
        return;
    };
    match entries.iter_mut().find(|known| known.key == entry.key) {
        Some(known) => rule(&mut known.value, entry.value),
        None => entries.push(entry),
    }
}

/// Converts the older form, a plain list of endpoints, to the newer one.
fn nested_webhooks(mut entry: MapEntry) -> MapEntry {
    if matches!(entry.value.kind, NodeKind::List(_)) {
        let at = entry.value.at.clone();
        let endpoints = MapEntry {
            key: "endpoints".to_owned(),
            key_at: at.clone(),
            value: entry.value,
        };
        let kind = NodeKind::Map(vec![endpoints]);
        let is_filled = false;
        entry.value = ConfigNode {
            at,
            kind,
            is_filled,
        };
    }
    entry
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::config::yaml;

    fn merged(files: &[&str]) -> serde_json::Value {
        let path = Arc::from(Path::new("x.yaml"));
        let mut known = yaml::parse(&path, "{}").unwrap();
        for file in files {
            merge_file(&mut known, yaml::parse(&path, file).unwrap());
        }
        known.json()
    }

    #[test]
    fn scalars_are_replaced_lists_grow_and_plugins_are_replaced_whole_du_004() {
        let first = "service: {name: a, log_level: debug}\nplugin_roots: [p]\nplugins: {e: {enabled: true, config: {x: 1}}, f: {}}\napi: {enabled: true, auth: {tokens: [{token: a}]}}";
        let later = "service: {name: '', log_level: warn, max_workers:}\nplugin_roots: [q]\nplugins: {e: {config: {y: 2}}}\napi: {enabled: false, auth: {tokens: [{token: b}]}}";
        let expected = json!({
            "service": {"name": "a", "log_level": "warn", "max_workers": null},
            "plugin_roots": ["p", "q"],
            "plugins": {"e": {"config": {"y": 2}}, "f": {}},
            "api": {"enabled": false, "auth": {"tokens": [{"token": "a"}, {"token": "b"}]}},
        });
        assert_eq!(merged(&[first, later]), expected);
    }

    #[test]
    fn flat_and_nested_webhooks_add_up_du_015() {
        let nested = "webhooks: {listen: 'l', endpoints: [{path: /a}]}";
        let flat = "webhooks: [{path: /b}]";
        let both =
            json!({"webhooks": {"listen": "l", "endpoints": [{"path": "/a"}, {"path": "/b"}]}});
        assert_eq!(merged(&[nested, flat]), both);
        assert_eq!(merged(&[flat])["webhooks"]["endpoints"][0]["path"], "/b");
    }

    #[test]
    fn an_empty_section_takes_nothing_away() {
        let both = merged(&["plugins: {e: {}}\nservice: {name: a}", "plugins:\nservice:"]);
        assert_eq!(
            both,
            json!({"plugins": {"e": {}}, "service": {"name": "a"}})
        );
        let both = merged(&["plugins:\nservice:", "plugins: {e: {}}\nservice: {name: a}"]);
        assert_eq!(
            both,
            json!({"plugins": {"e": {}}, "service": {"name": "a"}})
        );
    }
}
