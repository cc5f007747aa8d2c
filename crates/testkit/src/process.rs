//! A real server process for tests.
