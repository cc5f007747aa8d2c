//! Add, list and remove users of the dashboard and the routes of operators. All commands need the admin token.

mod add;
mod list;
mod remove;
mod set_password;
mod set_role;

use clap::{Subcommand, ValueEnum};
use consign_client::{SecretKey, UserStatus};

use crate::failure::{Exit, Failure};
use crate::{input, out, render};

#[derive(Debug, Subcommand)]
pub(crate) enum UserSubcommand {
    /// Add a user; the password is made and shown once, or read from a file
    Add(Box<add::Args>),
    /// List users and their roles
    List(Box<list::Args>),
    /// Remove a user, who cannot sign in from then on
    Remove(Box<remove::Args>),
    /// Change the role of a user
    SetRole(Box<set_role::Args>),
    /// Set a new password, made and shown once, or read from a file
    SetPassword(Box<set_password::Args>),
}

impl UserSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Add(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Remove(args) => args.run().await,
            Self::SetRole(args) => args.run().await,
            Self::SetPassword(args) => args.run().await,
        }
    }
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleArg {
    /// Sees everything but the tokens of claims, and changes nothing
    Viewer,
    /// Also retries, cancels and deletes intents and cleans up
    Operator,
    /// Does everything, including keys, users and purges
    Admin,
}

impl RoleArg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PasswordArgs {
    /// File with the password, - for standard input; without it the server makes one
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
}

impl PasswordArgs {
    /// The chosen password, if there is one.
    pub(crate) fn read(&self) -> anyhow::Result<Option<SecretKey>> {
        let Some(file) = &self.password_file else {
            return Ok(None);
        };
        let text = input::file("the password", file)?;
        // An editor ends a file with a line break, which is no part of the password.
        let password = SecretKey::new(text.trim_end_matches(['\r', '\n']));
        if password.is_empty() {
            return Err(Failure::usage("the password is empty").into());
        }
        Ok(Some(password))
    }
}

/// The password that the server made, alone on standard output.
pub(crate) fn show_made(user: &UserStatus) -> anyhow::Result<()> {
    if let Some(password) = &user.password {
        out::data(password)?;
        let name = render::safe(&user.name);
        out::note(&format!(
            "this password of {name} is shown only now; it signs in at /admin/dashboard"
        ));
    }
    Ok(())
}
