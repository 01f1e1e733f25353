//! Cargo wants a package to have a target. This one is never built.
