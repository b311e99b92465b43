//! `gpipe verify`: compares training in one stage and as configured, bit for bit.

use gpipe_report::{Event, numbers};
use gpipe_train::verify::Verification;

use crate::args::{OutputArgs, VerifyArgs};
use crate::fail::{Fail, Result};
use crate::output::{Console, print};
use crate::ranks;

/// The default number of steps.
const STEPS: u64 = 3;

/// Compares the configured run with one in a single stage.
pub fn run(args: &VerifyArgs, output: OutputArgs) -> Result<()> {
    let config = args.settings.resolve()?;
    let steps = match args.settings.steps {
        Some(_) => config.run.steps.u64(),
        None => STEPS,
    };
    let found = gpipe_train::vocabulary(&config, config.model.folder())?;
    let dataset = gpipe_train::dataset(&config, &found.vocabulary)?;
    let verification = Verification::over(&config, ranks::world())?;
    let descends = match verification.is_ascending() {
        true => "",
        false => ", adding up gradients in the order of the table",
    };
    if !ranks::speaks() {
        return Ok(verification.run(&dataset, steps, || {}).map(drop)?);
    }
    let console = Console::new(output, steps)?;
    if config.model.depends_on_micro_batches() {
        console.say(&format!(
            "batch normalization takes its statistics from micro-batches: both have {}",
            config.pipeline.micro_batches.get()
        ));
    }
    if let Some(warning) = &found.warning {
        console.warn(warning);
    }
    console.say(&format!(
        "{} in one stage on one thread, keeping everything{descends}",
        numbers::counted(steps, "step")
    ));
    let pipeline = &config.pipeline;
    let verdict = verification.run(&dataset, steps, || {
        console.say(&format!(
            "{} in {} on {}, schedule {}, remat {}",
            numbers::counted(steps, "step"),
            numbers::counted(pipeline.stages.u64(), "stage"),
            numbers::counted(pipeline.threads.u64(), "thread"),
            pipeline.schedule,
            pipeline.remat
        ));
    })?;
    let (parameters, difference) = (verdict.parameters, verdict.difference);
    let equal = difference.is_none();
    if output.json {
        let event = Event::Verify {
            equal,
            steps,
            parameters,
            difference,
        };
        print(&event.to_json()?)?;
    } else {
        print(&match difference {
            None => format!(
                "equal: losses and gradient norms of {}, and {parameters} parameters, bit for bit",
                numbers::counted(steps, "step")
            ),
            Some(difference) => format!("different: {difference}"),
        })?;
    }
    if equal { Ok(()) } else { Err(Fail::Unequal) }
}
