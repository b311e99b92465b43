#![forbid(unsafe_code)]
//! x
fn main() {}
