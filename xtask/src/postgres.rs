//! The PostgreSQL of the tests. The first test that needs it starts it in the folder that this module names, so that the
//! server is stopped and removed after the tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::context::Context;
use crate::process;

/// The variable that names the folder to the tests.
const VARIABLE: &str = "CONSIGN_TEST_POSTGRES";

/// Outside of the repository: the server runs as another user, who may have no access to it.
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("consign-test-postgres-{}", std::process::id()))
}

/// Names the folder to the tests that `command` starts.
pub(crate) fn set_folder(command: &mut Command) {
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
        let _ = process::output_of(context.program("kill", &["-QUIT", pid.trim()]));
        for _ in 0..50 {
            if !PathBuf::from(format!("/proc/{}", pid.trim())).exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    // Usually there is none.
    let _ = fs::remove_dir_all(folder);
}
