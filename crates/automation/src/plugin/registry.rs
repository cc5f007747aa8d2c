//! The plugins by the names that jobs use.
//!
//! A name is a discovered plugin or an alias of one; an alias shares only program and manifest. A plugin without its required
//! configuration is not registered, but its aliases may be.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::discovery::{Discovery, Note, Weight};
use super::manifest::{self, FREE_NAME, PluginManifest};

/// The configuration of one name.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    pub is_disabled: bool,
    /// The plugin whose program an alias uses.
    pub uses: Option<String>,
    pub config: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub struct RegisteredPlugin {
    pub name: String,
    /// For an alias, the plugin whose program it is.
    pub base: Option<String>,
    pub manifest: Arc<PluginManifest>,
    pub directory: PathBuf,
    pub entrypoint: PathBuf,
}

#[derive(Clone, Debug, Default)]
pub struct PluginRegistry {
    plugins: BTreeMap<String, RegisteredPlugin>,
}

/// The configuration contradicts the discovery; the start must fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "plugins.{0}: no manifest below the plugin roots has this name; install it or correct the name"
    )]
    NotFound(String),
    #[error("plugins.{alias}.uses: no plugin `{base}` was found; install it or correct the name")]
    UnknownBase { alias: String, base: String },
    #[error("plugins.{alias}.uses: `{base}` is an alias itself; use the plugin behind it")]
    AliasOfAlias { alias: String, base: String },
    #[error("plugins.{0}.uses: a plugin of this name was found too; rename the alias")]
    AliasHidesPlugin(String),
    #[error("plugins.{0}: write {FREE_NAME}")]
    Reserved(String),
}

/// Joins discovery and configuration. A discovered plugin without configuration is registered with an empty one.
pub fn register(
    discovery: Discovery,
    declarations: &BTreeMap<String, Declaration>,
) -> Result<(PluginRegistry, Vec<Note>), Error> {
    let unconfigured = Declaration::default();
    let mut registry = PluginRegistry::default();
    let mut notes = discovery.notes;
    let found = discovery.plugins;
    for (name, declaration) in declarations {
        if declaration.is_disabled {
            continue;
        }
        let base = declaration.uses.as_deref().unwrap_or(name);
        if declaration.uses.is_some() {
            check_alias(name, base, declarations, found.contains_key(name))?;
        }
        if found.contains_key(base) {
            continue;
        }
        if !discovery.skipped.contains(base) {
            let name = name.clone();
            return Err(match &declaration.uses {
                Some(base) => Error::UnknownBase {
                    alias: name,
                    base: base.clone(),
                },
                None => Error::NotFound(name),
            });
        }
    }

    let own = found.keys().map(|name| (name, name));
    let aliases = declarations.iter().filter(|(_, one)| !one.is_disabled);
    let aliases = aliases.filter_map(|(name, one)| Some((name, one.uses.as_ref()?)));
    for (name, base) in own.chain(aliases) {
        let Some(found) = found.get(base) else {
            notes.push(Note {
                weight: Weight::Skipped,
                plugin: Some(name.clone()),
                path: PathBuf::from(format!("plugins.{name}")),
                text: format!("the plugin `{base}` that it uses was skipped"),
            });
            continue;
        };
        let config = &declarations.get(name).unwrap_or(&unconfigured).config;
        let is_missing = |key: &&String| config.get(*key).is_none_or(Value::is_null);
        let required = found.manifest.config_required.iter();
        let missing = required.filter(is_missing).map(|key| format!("`{key}`"));
        let missing: Vec<String> = missing.collect();
        if !missing.is_empty() {
            let missing = missing.join(" and ");
            notes.push(Note {
                weight: Weight::Skipped,
                plugin: Some(name.clone()),
                path: found.directory.clone(),
                text: format!("`plugins.{name}.config` lacks {missing}, which the plugin needs"),
            });
            continue;
        }
        let plugin = RegisteredPlugin {
            name: name.clone(),
            base: (name != base).then(|| base.clone()),
            manifest: Arc::clone(&found.manifest),
            directory: found.directory.clone(),
            entrypoint: found.entrypoint.clone(),
        };
        registry.plugins.insert(name.clone(), plugin);
    }
    Ok((registry, notes))
}

fn check_alias(
    alias: &str,
    base: &str,
    declarations: &BTreeMap<String, Declaration>,
    hides_plugin: bool,
) -> Result<(), Error> {
    if !manifest::is_free(alias) {
        return Err(Error::Reserved(alias.to_owned()));
    }
    if hides_plugin {
        return Err(Error::AliasHidesPlugin(alias.to_owned()));
    }
    let is_alias = |name| declarations.get(name).is_some_and(|one| one.uses.is_some());
    if is_alias(base) {
        return Err(Error::AliasOfAlias {
            alias: alias.to_owned(),
            base: base.to_owned(),
        });
    }
    Ok(())
}

impl PluginRegistry {
    pub fn get(&self, name: &str) -> Option<&RegisteredPlugin> {
        self.plugins.get(name)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredPlugin> {
        self.plugins.values()
    }
}
