//! The roles of operators, from the settings.

use consign_kernel::error::Code;
use serde::{Deserialize, Serialize};

use super::OperatorSession;
use crate::problem::BeamProblem;
use crate::settings::Roles;

/// What an operator may do; a higher role includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

impl Role {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl Roles {
    /// Whether there are no operators at all.
    pub fn is_empty(&self) -> bool {
        self.admins.is_empty() && self.operators.is_empty() && self.viewers.is_empty()
    }

    pub(super) fn require_any(&self) -> Result<(), BeamProblem> {
        if self.is_empty() {
            let text = "Admin access is not configured";
            return Err(BeamProblem::new(Code::AdminUnavailable, text));
        }
        Ok(())
    }

    /// Lets an operator with at least this role pass.
    pub fn require(
        &self,
        session: Option<OperatorSession>,
        role: Role,
    ) -> Result<OperatorSession, BeamProblem> {
        self.require_any()?;
        let session = session.ok_or_else(BeamProblem::unauthorized)?;
        if session.role < role {
            let text = format!("This needs the role {}", role.word());
            return Err(BeamProblem::new(Code::Forbidden, text));
        }
        Ok(session)
    }

    /// The highest role of an address; case does not count.
    pub fn of(&self, email: &str) -> Option<Role> {
        let lists = [
            (Role::Admin, &self.admins),
            (Role::Operator, &self.operators),
            (Role::Viewer, &self.viewers),
        ];
        let email = email.to_lowercase();
        let has = |list: &[String]| list.iter().any(|listed| listed.to_lowercase() == email);
        let found = lists.into_iter().find(|(_, list)| has(list));
        found.map(|(role, _)| role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_highest_of_its_roles() {
        let roles = Roles {
            admins: vec!["Ada@Example.com".to_owned()],
            operators: vec!["ada@example.com".to_owned(), "bob@example.com".to_owned()],
            viewers: vec!["bob@example.com".to_owned(), "eve@example.com".to_owned()],
        };
        assert_eq!(roles.of("ada@example.com"), Some(Role::Admin));
        assert_eq!(roles.of("BOB@example.com"), Some(Role::Operator));
        assert_eq!(roles.of("eve@example.com"), Some(Role::Viewer));
        assert_eq!(roles.of("mallory@example.com"), None);
        assert!(!roles.is_empty());
        assert!(Roles::default().is_empty());
    }

    #[test]
    fn be_150_a_route_is_open_from_its_role_on() {
        let roles = Roles {
            viewers: vec!["eve@example.com".to_owned()],
            ..Roles::default()
        };
        let session = |role| OperatorSession {
            id: "0123".to_owned(),
            email: "eve@example.com".to_owned(),
            role,
            expires_at_ms: 0,
        };
        let refusal = |roles: &Roles, given: Option<Role>| {
            let passed = roles.require(given.map(session), Role::Operator);
            passed.err().map(|problem| problem.code)
        };
        assert_eq!(refusal(&roles, Some(Role::Admin)), None);
        assert_eq!(refusal(&roles, Some(Role::Operator)), None);
        assert_eq!(refusal(&roles, Some(Role::Viewer)), Some(Code::Forbidden));
        assert_eq!(refusal(&roles, None), Some(Code::Unauthorized));
        let none = Roles::default();
        let admin = Some(Role::Admin);
        assert_eq!(refusal(&none, admin), Some(Code::AdminUnavailable));
    }
}
