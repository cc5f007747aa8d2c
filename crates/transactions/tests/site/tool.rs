//! Programs and packages that `cargo xtask` installs next to the build.

use std::path::{Path, PathBuf};

/// The path of such a tool.
pub(crate) fn tool(path: &str) -> PathBuf {
    let tool = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .with_file_name("xtask")
        .join(path);
    assert!(
        tool.exists(),
        "{} is missing; install it with: cargo xtask test --only tools",
        tool.display()
    );
    tool
}
