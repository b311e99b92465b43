//! Whatever bytes a parser is given, it says what it understood or, in one line, why not: by a
//! corpus of hostile inputs and by mutations of good ones (`cargo xtask exam P1 P3`).

mod corpus;
mod folders;
mod fuzz;
mod mutate;
mod targets;

/// Whether the exam wants its full numbers.
fn full() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}
