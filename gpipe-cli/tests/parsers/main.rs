//! Every parser answers arbitrary bytes with what it read or with one error line: tested by a corpus of
//! hostile inputs and by mutations of valid ones (`cargo xtask exam P1 P3`).

mod corpus;
mod folders;
mod fuzz;
mod mutate;
mod targets;

/// Whether the exam wants its full numbers.
fn full() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}
