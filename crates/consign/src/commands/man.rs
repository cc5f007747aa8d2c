//! `consign man`

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Exit;
use crate::out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write a page for each command into this directory, such as ~/.local/share/man/man1; without it, the page of
    /// consign itself is printed
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let command = Cli::command();
        let Some(dir) = &self.dir else {
            let page = page(command)?;
            out::data(&String::from_utf8(page)?)?;
            return Ok(Exit::Done);
        };
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut count = 0;
        for (name, page) in pages(command)? {
            let path = dir.join(format!("{name}.1"));
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
            count += 1;
        }
        out::note(&format!("{count} pages are in {}", dir.display()));
        Ok(Exit::Done)
    }
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

/// The pages of a command and of all commands below it, by name.
fn pages(command: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        add_pages(inner, pages)?;
    }
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    pages.push((name, page(command.clone())?));
    Ok(())
}
