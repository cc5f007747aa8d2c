//! What an agent says about itself when it registers, and the rules for it.
//!
//! Invariant: the rules are checked in the order that the protocol prescribes, and the first one that is broken is reported.

#[cfg(test)]
mod tests;

use consign_kernel::error::Code;

use super::records::{PUBLIC, UNLISTED};
use crate::beam_id::{self, BeamId, PERSONAL_ORG};
use crate::keys::BeamPublicKey;
use crate::outbound::AddressGuard;
use crate::problem::BeamProblem;
use crate::trust::VerificationTier;

pub(crate) const DISPLAY_NAME_CHARS_MAX: usize = 256;
pub(crate) const CAPABILITIES_MAX: usize = 100;
pub(crate) const CAPABILITY_CHARS_MAX: usize = 128;
/// All capabilities together. Lists of agents keep them in memory.
pub(crate) const CAPABILITIES_BYTES_MAX: usize = CAPABILITIES_MAX * CAPABILITY_CHARS_MAX;
pub(crate) const EMAIL_CHARS_MAX: usize = 254;
/// Also kept in memory.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4_096;
pub(crate) const URL_CHARS_MAX: usize = 2_048;
pub(crate) const DH_KEY_CHARS_MAX: usize = 512;

/// The fields of a request. Text is trimmed, and blank text counts as absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistrationInput {
    pub(crate) beam_id: Option<String>,
    pub(crate) display_name: Option<String>,
    /// `None` if it is no list of strings.
    pub(crate) capabilities: Option<Vec<String>>,
    pub(crate) public_key: Option<String>,
    pub(crate) org: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) logo_url: Option<String>,
    pub(crate) verification_tier: Option<String>,
    pub(crate) visibility: Option<String>,
    pub(crate) http_endpoint: Option<String>,
    pub(crate) dh_public_key: Option<String>,
}

/// The name that an agent asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedName {
    Exactly(BeamId),
    /// The first free id of this name.
    Like {
        agent: String,
        org: String,
    },
}

/// A registration that keeps all rules.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) name: RequestedName,
    pub(crate) display_name: String,
    pub(crate) capabilities: Vec<String>,
    pub(crate) public_key: BeamPublicKey,
    /// The key as it was sent, which a signature covers.
    pub(crate) public_key_text: String,
    pub(crate) email: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) logo_url: Option<String>,
    pub(crate) visibility: Option<&'static str>,
    pub(crate) http_endpoint: Option<String>,
    pub(crate) dh_public_key: Option<String>,
}

impl Registration {
    pub(crate) fn check(
        input: RegistrationInput,
        guard: &AddressGuard,
    ) -> Result<Self, BeamProblem> {
        let capabilities = checked_capabilities(input.capabilities)?;
        let display_name = checked_display_name(input.display_name)?;
        let email = checked_email(input.email)?;
        let (public_key, public_key_text) = checked_key(input.public_key)?;
        let description = input.description;
        if let Some(text) = &description
            && text.len() > DESCRIPTION_BYTES_MAX
        {
            return Err(long_description());
        }
        if input
            .logo_url
            .as_deref()
            .is_some_and(|url| !is_web_address(url))
        {
            let text = "logo_url must be a valid absolute URL";
            return Err(BeamProblem::new(Code::InvalidLogoUrl, text));
        }
        // Only operators set the tier, so the value itself does not count.
        if let Some(tier) = &input.verification_tier
            && VerificationTier::parse(tier).is_none()
        {
            let text = "verification_tier is invalid";
            return Err(BeamProblem::new(Code::InvalidVerificationTier, text));
        }
        let name = checked_name(input.beam_id, input.org, &display_name, email.as_deref())?;
        let visibility = input.visibility.map(|word| {
            let is_public = word.eq_ignore_ascii_case(PUBLIC);
            if is_public { PUBLIC } else { UNLISTED }
        });
        if let Some(endpoint) = &input.http_endpoint {
            check_endpoint(guard, endpoint)?;
        }
        if let Some(key) = &input.dh_public_key {
            check_dh_key(key)?;
        }
        Ok(Self {
            name,
            display_name,
            capabilities,
            public_key,
            public_key_text,
            email,
            description,
            logo_url: input.logo_url,
            visibility,
            http_endpoint: input.http_endpoint,
            dh_public_key: input.dh_public_key,
        })
    }
}

fn checked_capabilities(given: Option<Vec<String>>) -> Result<Vec<String>, BeamProblem> {
    let refused = |text: String| Err(BeamProblem::new(Code::InvalidCapabilities, text));
    let Some(capabilities) = given else {
        return refused("capabilities must be an array of strings".to_owned());
    };
    if capabilities.iter().any(String::is_empty) {
        return refused("capabilities must be an array of strings".to_owned());
    }
    let is_long = |capability: &String| capability.chars().count() > CAPABILITY_CHARS_MAX;
    if capabilities.len() > CAPABILITIES_MAX || capabilities.iter().any(is_long) {
        return refused(format!(
            "capabilities must be at most {CAPABILITIES_MAX} strings of at most {CAPABILITY_CHARS_MAX} characters"
        ));
    }
    if capabilities.iter().map(String::len).sum::<usize>() > CAPABILITIES_BYTES_MAX {
        return refused(format!(
            "capabilities must have at most {CAPABILITIES_BYTES_MAX} bytes together"
        ));
    }
    Ok(capabilities)
}

fn checked_display_name(given: Option<String>) -> Result<String, BeamProblem> {
    let refused = |text: String| BeamProblem::new(Code::InvalidDisplayName, text);
    let name =
        given.ok_or_else(|| refused("display_name must be a non-empty string".to_owned()))?;
    if name.chars().count() > DISPLAY_NAME_CHARS_MAX {
        let text = format!("display_name must have at most {DISPLAY_NAME_CHARS_MAX} characters");
        return Err(refused(text));
    }
    Ok(name)
}

fn checked_email(given: Option<String>) -> Result<Option<String>, BeamProblem> {
    let email = given.map(|email| email.to_lowercase());
    if email.as_deref().is_some_and(|email| !is_email(email)) {
        let text = "email must be a valid email address";
        return Err(BeamProblem::new(Code::InvalidEmail, text));
    }
    Ok(email)
}

/// `local@domain`, where the domain has a dot with text on both sides.
fn is_email(text: &str) -> bool {
    if text.chars().count() > EMAIL_CHARS_MAX || text.chars().any(char::is_whitespace) {
        return false;
    }
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let mut inner = domain.char_indices().skip(1);
    let has_dot = inner.any(|(at, c)| c == '.' && at + 1 < domain.len());
    !local.is_empty() && !domain.contains('@') && has_dot
}

fn checked_key(given: Option<String>) -> Result<(BeamPublicKey, String), BeamProblem> {
    let Some(text) = given else {
        let text = "public_key must be a non-empty string";
        return Err(BeamProblem::new(Code::InvalidPublicKey, text));
    };
    Ok((parse_key(&text)?, text))
}

pub(super) fn parse_key(text: &str) -> Result<BeamPublicKey, BeamProblem> {
    BeamPublicKey::parse(text).map_err(|_| {
        let text = "Invalid Ed25519 public key: it must be base64 of SPKI in DER";
        BeamProblem::new(Code::InvalidPublicKeyFormat, text)
    })
}

fn checked_name(
    beam_id: Option<String>,
    org: Option<String>,
    display_name: &str,
    email: Option<&str>,
) -> Result<RequestedName, BeamProblem> {
    let org = org.map(|org| org.to_lowercase());
    let mismatch = |org: &str, found: &str| {
        let text = format!("org field ({org}) does not match org extracted from beamId ({found})");
        BeamProblem::new(Code::OrgMismatch, text)
    };
    if let Some(text) = beam_id {
        let id = BeamId::parse(&text.to_lowercase()).map_err(|_| {
            let text = "beamId must match agent@org.beam.directory or agent@beam.directory \
                        (lower case letters, digits, hyphens, underscores)";
            BeamProblem::new(Code::InvalidBeamId, text)
        })?;
        let org = org.as_deref().unwrap_or(id.org());
        if org != id.org() || id.is_personal() != (org == PERSONAL_ORG) {
            return Err(mismatch(org, id.org()));
        }
        return Ok(RequestedName::Exactly(id));
    }
    let org = org
        .or_else(|| email.and_then(beam_id::org_of_email))
        .unwrap_or_else(|| PERSONAL_ORG.to_owned());
    let agent = beam_id::agent_name(display_name, email);
    if BeamId::new(&agent, &org).is_err() {
        let shown: String = org.chars().take(beam_id::LABEL_CHARS_MAX).collect();
        return Err(mismatch(&shown, "unknown"));
    }
    Ok(RequestedName::Like { agent, org })
}

/// Whether a text is an absolute address of the web. Other schemes, such as `javascript:`, must not reach a browser.
pub(super) fn is_web_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let is_web = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_clean =
        !text.contains(|c: char| c.is_whitespace() || c.is_control() || "<>\"\\".contains(c));
    is_web && !host.is_empty() && is_clean && text.chars().count() <= URL_CHARS_MAX
}

pub(super) fn check_endpoint(guard: &AddressGuard, endpoint: &str) -> Result<(), BeamProblem> {
    let checked = guard.check_text(endpoint);
    checked.map(|_| ()).map_err(|error| {
        let text = format!("httpEndpoint must be a public HTTPS URL: {error}");
        BeamProblem::new(Code::InvalidHttpEndpoint, text)
    })
}

pub(super) fn check_dh_key(key: &str) -> Result<(), BeamProblem> {
    if key.chars().count() > DH_KEY_CHARS_MAX {
        return Err(too_long("dhPublicKey", DH_KEY_CHARS_MAX));
    }
    Ok(())
}

pub(super) fn long_description() -> BeamProblem {
    let text = format!("description must have at most {DESCRIPTION_BYTES_MAX} bytes");
    BeamProblem::new(Code::InvalidBody, text)
}

fn too_long(field: &str, chars_max: usize) -> BeamProblem {
    let text = format!("{field} must have at most {chars_max} characters");
    BeamProblem::new(Code::InvalidBody, text)
}
