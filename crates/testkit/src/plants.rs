//! Planted defects: enabled for a whole test process by the variable `CONSIGN_PLANT`.

/// Enables the planted defect in the environment. Call it wherever a test builds its setup.
pub fn from_environment() {
    if let Ok(name) = std::env::var("CONSIGN_PLANT") {
        assert!(
            consign_kernel::plant::set(&name),
            "CONSIGN_PLANT={name} is no planted defect"
        );
    }
}
