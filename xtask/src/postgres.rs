//! The PostgreSQL of the tests. The first test that needs it starts it in a folder that is named here, so that it can be
//! stopped and removed when the tests are over.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::context::Context;
use crate::process;

/// Where tests look for the folder.
const VARIABLE: &str = "CONSIGN_TEST_POSTGRES";

/// Outside of the repository: the server runs as another user, who may not be able to look in there.
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("consign-test-postgres-{}", std::process::id()))
}

/// Tests that this command starts use that folder.
pub(crate) fn lend(command: &mut Command) {
    command.env(VARIABLE, folder());
}

/// Stops the server, if a test started it, and removes its folder.
pub(crate) fn stop(context: &Context) {
    let folder = folder();
    let file = folder.join("cluster/data/postmaster.pid");
    if let Ok(text) = fs::read_to_string(file)
        && let Some(pid) = text.lines().next()
    {
        // SIGQUIT: at once; nothing in it is needed any more.
        let _ = process::ask(context.program("kill", &["-QUIT", pid.trim()]));
        for _ in 0..50 {
            if !PathBuf::from(format!("/proc/{}", pid.trim())).exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    // Most often there is none.
    let _ = fs::remove_dir_all(folder);
}
