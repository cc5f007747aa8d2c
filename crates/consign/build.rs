//! Tells the program what built it, for `consign version`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=CONSIGN_TARGET={target}");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    let version = said.map_or_else(
        |_| String::new(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    );
    println!("cargo:rustc-env=CONSIGN_RUSTC={version}");
}
