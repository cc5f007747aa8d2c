//! Changes of a key that exists: its settings, and its secret.

use consign_kernel::error::Refusal;
use consign_kernel::record::{ApiKey, ApiKeyAlias, PastSecret};
use data_encoding::HEXLOWER;

use super::{KeyInfo, KeySettings, NewKey, digest, id_of, id_of_digest, new_secret};
use crate::records::TRIES_MAX;
use crate::unit_of_work::UnitOfWork;
use crate::{Engine, Error, Operator};

/// Secrets of a key before its present one.
const PAST_SECRETS_MAX: usize = 4;

impl Engine {
    /// Changes the settings of a key, given as key or key id. `None` if there is no such key.
    pub async fn change_key(
        &self,
        _: Operator,
        key: &str,
        settings: KeySettings,
    ) -> Result<Option<KeyInfo>, Error> {
        let id = self.resolve_key_id(key).await?;
        let changed = self
            .update_key(&id, |key, _| {
                settings.clone().apply_to(key);
                Ok(())
            })
            .await?;
        match changed {
            Some(()) => self.key_info(&id).await,
            None => Ok(None),
        }
    }

    /// Replaces the secret of a key, given as key or key id. Its present secret is accepted for `overlap_us` longer; its id,
    /// intents, grants and limits stay. `None` if there is no such key.
    pub async fn rotate_key(
        &self,
        _: Operator,
        key: &str,
        overlap_us: i64,
    ) -> Result<Option<NewKey>, Error> {
        let id = self.resolve_key_id(key).await?;
        let (secret, now) = (new_secret()?, self.now());
        let digest = digest(&secret);
        let sealed = self.inner.seal.seal(&id, &secret)?;
        let rotated = self
            .update_key(&id, |key, unit| {
                let past = PastSecret {
                    digest: std::mem::replace(&mut key.digest, HEXLOWER.encode(&digest)),
                    until: now.plus(overlap_us.max(0)).0,
                };
                key.sealed.clone_from(&sealed);
                let (ended, mut kept): (Vec<_>, Vec<_>) = std::mem::take(&mut key.past_secrets)
                    .into_iter()
                    .partition(|past| past.until <= now.0);
                for past in ended {
                    unit.delete(ApiKeyAlias::key(&id_of_digest(&past.digest)));
                }
                kept.push(past);
                // The record stays small, however often a key is rotated within the overlap.
                while kept.len() > PAST_SECRETS_MAX {
                    let past = kept.remove(0);
                    unit.delete(ApiKeyAlias::key(&id_of_digest(&past.digest)));
                }
                key.past_secrets = kept;
                let alias = ApiKeyAlias { key_id: id.clone() };
                unit.put(ApiKeyAlias::key(&id_of(&digest)), &alias);
                Ok(key.label.clone())
            })
            .await?;
        Ok(rotated.map(|owner| NewKey { id, secret, owner }))
    }

    /// Changes a key that exists. A key that is used meanwhile is changed again on its new version.
    async fn update_key<R>(
        &self,
        id: &str,
        mut change: impl FnMut(&mut ApiKey, &mut UnitOfWork) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        for _ in 0..TRIES_MAX {
            let Some(mut record) = self.load::<ApiKey>(ApiKey::key(id)).await? else {
                return Ok(None);
            };
            let mut unit = UnitOfWork::default();
            let result = change(&mut record.value, &mut unit)?;
            unit.replace(&record);
            match self.commit(unit).await {
                Ok(_) => return Ok(Some(result)),
                Err(Error::Refused(Refusal::VersionMismatch)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Refused(Refusal::VersionMismatch))
    }
}
