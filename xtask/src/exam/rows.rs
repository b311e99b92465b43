//! The rows: what they promise, and which tests keep the promise.

use super::test::Test;

/// A row of the exam.
pub struct Row {
    /// Such as `F1`.
    pub name: &'static str,
    /// What it promises, in a few words.
    pub what: &'static str,
    /// How many things must be tried, at the least, at full numbers.
    pub at_least: u64,
    /// The tests that try them.
    pub tests: Vec<Test>,
    /// The tests that plant faults and demand that the row sees them.
    pub teeth: Option<Test>,
    /// Whether `exam --quick` and thereby `cargo xtask ci` runs it.
    pub quick: bool,
}

/// All rows, in the order in which they run.
pub fn rows() -> Vec<Row> {
    let sched = |filter| Test::new("gpipe-sched", "suite", filter);
    let remat = |binary, filter| Test::new("gpipe-remat", binary, filter);
    let checkpoint = |filter| Test::new("gpipe-checkpoint", "", filter);
    let cli = |binary, filter| Test::new("gpipe-cli", binary, filter);
    vec![
        Row {
            name: "S",
            what: "schedules of every size: in order, ascending, within their memory, no sender waits on links with their slots",
            at_least: 25_000,
            tests: vec![sched("exam::every_schedule")],
            teeth: Some(sched("exam::every_planted")),
            quick: true,
        },
        Row {
            name: "N1",
            what: "every schedule, up to eight stages, any number of micro-batches, every policy: the bits of one stage",
            at_least: 1_500,
            tests: vec![remat("schedules", "to_the_bits").release()],
            teeth: Some(remat("schedules", "a_descending")),
            quick: true,
        },
        Row {
            name: "N2",
            what: "a Transformer on up to eight stages, every policy, budget and number of threads: the losses, norms, gradients and parameters of one stage, to the bit",
            at_least: 1_500,
            tests: vec![remat("transparency", "tied_with").release()],
            teeth: Some(remat("transparency", "faults")),
            quick: true,
        },
        Row {
            name: "N3",
            what: "random networks with nested and crossing skips, every schedule and policy: the bits of one stage, the predicted bytes",
            at_least: 3_000,
            tests: vec![remat("skips", "any_skips")],
            teeth: Some(remat("skips", "every_planted")),
            quick: true,
        },
        Row {
            name: "N4",
            what: "networks for images at any cut, schedule, policy, budget and number of threads: the bits of one stage, to the byte",
            at_least: 4_600,
            tests: vec![remat("networks", "to_the_bits").release()],
            teeth: Some(remat("networks", "teeth")),
            quick: true,
        },
        Row {
            name: "N5",
            what: "Transformers, whole, frozen in part or with adapters, at any cut, schedule, policy and number of threads: the bits of one stage, to the byte",
            at_least: 5_100,
            tests: vec![remat("transformers", "to_the_bits").release()],
            teeth: Some(remat("transformers", "teeth")),
            quick: true,
        },
        Row {
            name: "A1",
            what: "plans of small models, with and without a limit on memory: as fast as the best of all cuts, policies and orders",
            at_least: 1_500,
            tests: vec![remat("planner", "small_questions").release()],
            teeth: None,
            quick: true,
        },
        Row {
            name: "R1",
            what: "replicas, ranks, workers, schedules, policies and divided optimizer states, over threads and processes: the bits of one stage",
            at_least: 240,
            tests: vec![cli("worlds", "to_the_bits").release()],
            teeth: Some(cli("worlds", "teeth")),
            quick: true,
        },
        Row {
            name: "R2",
            what: "a rank that is killed, stopped, asked to stop, panics, or meets an error, a full disk or no memory at a random step ends the job with its cause, and another world goes on to the same bits; so do runs that are killed 200 times while they save every step",
            at_least: 460,
            tests: vec![
                cli("worlds", "a_rank_that_is_lost").release(),
                cli("worlds", "kills_while_every_step_is_saved").release(),
            ],
            teeth: None,
            quick: false,
        },
        Row {
            name: "R3",
            what: "four network namespaces as hosts: the bits of one stage over TCP, and a link that goes down ends the job with its cause",
            at_least: 100,
            tests: vec![cli("worlds", "hosts_have").release()],
            teeth: None,
            quick: false,
        },
        Row {
            name: "G1",
            what: "emulated GPUs: devices, schedules, policies, types, graphs, in orders of work that are drawn: the bits of one way",
            at_least: 490,
            tests: [
                "orders::every_order",
                "mixed::every_way",
                "graphs::graphs_give",
            ]
            .map(|filter| cli("emulated", filter).features("emulated"))
            .into(),
            teeth: Some(
                Test::new("gpipe-tensor", "emulated", "orders::every_missing").features("emulated"),
            ),
            quick: false,
        },
        Row {
            name: "G2",
            what: "emulated GPUs: each call, of graphs too, that fails first or in the middle of a run, and memory that runs out anywhere: one error, or the same bits",
            at_least: 200,
            tests: [
                "failures::every_call",
                "graphs::what_goes_wrong",
                "graphs::a_step_that_runs_out",
            ]
            .map(|filter| cli("emulated", filter).features("emulated"))
            .into(),
            teeth: None,
            quick: false,
        },
        Row {
            name: "G3",
            what: "every CUDA kernel on the emulator, its threads in orders that are drawn: what the processor computes; without any one barrier, something else",
            at_least: 15_000,
            tests: vec![Test::new("gpipe-tensor", "", "kernels_equal")],
            teeth: Some(Test::new("gpipe-tensor", "", "every_barrier")),
            quick: false,
        },
        Row {
            name: "F1",
            what: "an error, panic or lack of memory at any action comes back with its place; the next step is right",
            at_least: 600,
            tests: vec![
                sched("failures::an_error"),
                remat("traps", ""),
                remat("verbs", ""),
            ],
            teeth: Some(sched("failures::teeth")),
            quick: true,
        },
        Row {
            name: "F2",
            what: "no interleaving of the workers' threads deadlocks or computes something else",
            at_least: 100_000,
            tests: vec![Test::new("gpipe-sched", "shuttle", "").shuttle()],
            teeth: Some(Test::new("gpipe-sched", "shuttle", "teeth").shuttle()),
            quick: false,
        },
        Row {
            name: "F3",
            what: "a stall in any phase of any call, the first included, ends it at its deadline and is named",
            at_least: 900,
            tests: vec![sched("stalls::a_stall"), remat("stalls", "a_stall")],
            teeth: Some(sched("stalls::an_answer")),
            quick: true,
        },
        Row {
            name: "F9",
            what: "10,000 steps leave no thread, file or memory behind",
            at_least: 10_000,
            tests: vec![remat("endurance", "")],
            teeth: Some(remat("endurance", "")),
            quick: true,
        },
        Row {
            name: "NF",
            what: "the first value that is not finite is named by micro-batch, layer and pass",
            at_least: 1_000,
            tests: vec![remat("non_finite", "every_cut")],
            teeth: Some(remat("non_finite", "teeth")),
            quick: true,
        },
        Row {
            name: "M2",
            what: "what is predicted to fit runs within exactly that many bytes",
            at_least: 500,
            tests: vec![remat("limits", "what_is_predicted")],
            teeth: Some(remat("limits", "a_byte_short")),
            quick: true,
        },
        Row {
            name: "M3",
            what: "any buffer of a step may be refused: an error, and the next step is right",
            at_least: 1_000,
            tests: vec![remat("limits", "a_step_without")],
            teeth: Some(remat("limits", "goes_unseen")),
            quick: true,
        },
        Row {
            name: "P1",
            what: "a million mutated inputs for each parser: no panic, and what is understood is consistent",
            at_least: 12_000_000,
            tests: vec![cli("parsers", "no_input").release()],
            teeth: Some(cli("parsers", "fuzz::teeth")),
            quick: true,
        },
        Row {
            name: "P3",
            what: "hostile files, tables and values, made by name, are refused in words",
            at_least: 150,
            tests: vec![cli("parsers", "hostile_inputs")],
            teeth: Some(cli("parsers", "that_nothing_fails")),
            quick: true,
        },
        Row {
            name: "P6",
            what: "configurations beyond any machine are refused within 512 MiB of address space",
            at_least: 60,
            tests: vec![
                cli("cli", "what_does_not_fit"),
                cli("cli", "a_text_is_read_where_it_fits"),
            ],
            teeth: Some(cli("cli", "the_confinement_holds")),
            quick: true,
        },
        Row {
            name: "H1",
            what: "random hostile tokenizers train or are refused within 1 GiB of address space and a minute",
            at_least: 1_000,
            tests: vec![cli("cli", "no_tokenizer_takes_more")],
            teeth: Some(cli("cli", "that_takes_more_is_seen")),
            quick: true,
        },
        Row {
            name: "C1",
            what: "a killed run goes on from its last acknowledged checkpoint, to the bits of one never killed",
            at_least: 1_000,
            tests: vec![cli("kills", "no_acknowledged_checkpoint")],
            teeth: Some(cli("kills", "teeth")),
            quick: false,
        },
        Row {
            name: "L1",
            what: "a stderr or stdout that is full, closed or gone ends no command, and no run unsaved",
            at_least: 50,
            tests: vec![cli("cli", "lost_output")],
            teeth: None,
            quick: true,
        },
        Row {
            name: "L2",
            what: "signals stop a run after it saved, a file at its limit is an error, hang-ups may be ignored",
            at_least: 8,
            tests: vec![cli("cli", "signals")],
            teeth: None,
            quick: true,
        },
        Row {
            name: "L3",
            what: "a state that is not finite is not saved, and a step that fails is told and saved before it",
            at_least: 10,
            tests: vec![cli("cli", "not_finite"), remat("owned", "not_finite")],
            teeth: Some(remat("owned", "not_finite")),
            quick: true,
        },
        Row {
            name: "L4",
            what: "runs killed, hung up, terminated, starved of disk or readers go on, to the bits of one never ended",
            at_least: 500,
            tests: vec![cli("kills", "every_end")],
            teeth: Some(cli("kills", "teeth")),
            quick: false,
        },
        Row {
            name: "C2",
            what: "from every step, under another pipeline, a run goes on to the same bits",
            at_least: 19,
            tests: vec![cli("cli", "every_step_can_be_gone_on_from")],
            teeth: None,
            quick: false,
        },
        Row {
            name: "C3",
            what: "whatever a loss of power leaves of a save, a checkpoint stands whole",
            at_least: 3_000,
            tests: vec![checkpoint("crashes::at_every_moment")],
            teeth: Some(checkpoint("crashes::teeth")),
            quick: true,
        },
        Row {
            name: "C4",
            what: "whichever call of a save fails, the old checkpoint stands and the next save works",
            at_least: 700,
            tests: vec![checkpoint("tests::faults")],
            teeth: None,
            quick: true,
        },
        Row {
            name: "C5",
            what: "flipped bits and truncations of a checkpoint are noticed, and the file is named",
            at_least: 28_000,
            tests: vec![checkpoint("tests::damage")],
            teeth: None,
            quick: true,
        },
        Row {
            name: "C6",
            what: "a save holds what was there when it was called",
            at_least: 1_000,
            tests: vec![checkpoint("nothing_is_torn")],
            teeth: None,
            quick: true,
        },
        Row {
            name: "C9",
            what: "what saving costs, measured: the delay of training, and how much of a save is beside it",
            at_least: 18,
            tests: vec![cli("cli", "a_save_delays").release()],
            teeth: None,
            quick: false,
        },
        Row {
            name: "X1",
            what: "stages of candle: the same bits on 1, 2 and 4 stages under gpipe, 1f1b and zb-h1",
            at_least: 9,
            tests: vec![Test::example("gpipe-sched/examples/candle")],
            teeth: None,
            quick: false,
        },
        Row {
            name: "Q2",
            what: "Miri sees no undefined behaviour in the unsafe modules and in the workers' threads",
            at_least: 15,
            tests: vec![
                Test::new("gpipe-tensor", "", "floats::").miri(),
                Test::new("gpipe-tensor", "", "fork_join::").miri(),
                Test::new("gpipe-tensor", "", "pool::").miri(),
                Test::new("gpipe-tensor", "", "tensor::").miri(),
                Test::new("gpipe-sched", "", "").miri(),
                Test::new("gpipe-sched", "suite", "transparency::visits").miri(),
            ],
            teeth: None,
            quick: false,
        },
        Row {
            name: "W1",
            what: "what a newcomer types wrong is answered by one line with the mend",
            at_least: 30,
            tests: vec![cli("cli", "wrong_lines")],
            teeth: None,
            quick: true,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{self, Tree};

    /// A filter that nothing matches runs no test, and a row of none fails only at its next run.
    #[test]
    fn every_filter_names_something() {
        let tree = Tree::read(&tree::root().unwrap()).unwrap();
        for row in rows() {
            for test in row.tests.iter().chain(&row.teeth) {
                let folder = match test.binary {
                    "" => format!("{}/src/", test.package),
                    binary => format!("{}/tests/{binary}", test.package),
                };
                let sources: Vec<(&str, &str)> = tree
                    .sources()
                    .filter(|(path, _)| path.starts_with(&folder))
                    .collect();
                assert!(!sources.is_empty(), "{}: no {folder}", row.name);
                for part in test.filter.split("::") {
                    let named = sources
                        .iter()
                        .any(|(path, text)| path.contains(part) || text.contains(part));
                    assert!(named, "{}: no {part} in {folder}", row.name);
                }
            }
        }
    }
}
