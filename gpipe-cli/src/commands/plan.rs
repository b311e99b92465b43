//! `gpipe plan`: the plan of a run, without running it.

use gpipe_remat::planner::Described;
use gpipe_remat::{StageMemory, StagePrices};
use gpipe_sched::{Costs, Schedule, StageCosts, simulate};

use gpipe_report::{Cuts, numbers};
use gpipe_train::config::ScheduleChoice;
use gpipe_train::cost_import::{WholeCosts, check_settings, read_argument, whole};
use gpipe_train::profile::{ProfileOptions, Speed};
use gpipe_train::recommend::{Ranks, Recommender};
use gpipe_train::{Setup, TrainConfig, links, micro_batches_of, plan_event, printable};

use super::refusals::told;
use super::{auto, compare, profile};
use crate::args::{OutputArgs, PlanArgs};
use crate::fail::{Fail, Result, with_flags};
use crate::output::{print, style, table_within, terminal_width, warn, wrapped};
use crate::ranks;

/// Plans the configured run, or one for layer costs.
pub fn run(args: &PlanArgs, output: OutputArgs) -> Result<()> {
    let given = args.costs.as_deref().map(read_argument).transpose()?;
    let layers = args.settings.layers()?;
    if given.is_some() {
        check_settings(&args.settings.typed()?, args.auto || args.compare)?;
    }
    let config = match &given {
        Some(given) => layers.of_costs(given.batch).resolve()?,
        None => layers.resolve()?,
    };
    let path = profile::path(args.settings.config.as_deref());
    let options = ProfileOptions::new(&path).measure(args.profile);
    let options = options.beside(!ranks::speaks());
    let world = ranks::world();
    let links = match &world {
        Some(world) => links::measure(world, &config)?,
        None => Vec::new(),
    };
    profile::show_links(&links, output)?;
    if args.auto || args.compare {
        let mut planning = args.planning.options(&config)?;
        planning.fixed = args.settings.fixed()?;
        planning.ranks = (world.as_ref().map(|world| Ranks::of(world, &links))).transpose()?;
        // A table is ranked among the schedules.
        let is_table = matches!(*config.pipeline.schedule, ScheduleChoice::Table(_));
        planning.fixed.schedule &= args.auto || !is_table;
        let recommender = match given {
            None => {
                let mut progress = profile::progress(output, "gpipe plan --auto");
                let recommender =
                    Recommender::of_model(&config, &planning, options, &mut progress)?;
                if let (true, Some(speed)) = (args.profile, recommender.speed()) {
                    let (costs, workers) = (recommender.costs(&config)?, recommender.workers());
                    profile::show(speed, &costs, workers.len(), output)?;
                }
                recommender
            }
            Some(costs) => Recommender::of_costs(costs, &config, &planning)?,
        };
        return if args.auto {
            auto::show(args, &recommender, &config, output)
        } else {
            compare::show(&recommender, &config, output)
        };
    }
    if args.planning.is_given() {
        return Err(Fail::invalid(
            "--workers, --link and --hosts describe workers for a recommendation: add --auto or --compare",
        ));
    }
    match args.costs.as_deref().zip(given) {
        None => {
            let setup = Setup::over(&config, world.as_ref())?.with_links(&links);
            write_table(args, &setup.schedule)?;
            show_setup(&config, setup, false, options, output)
        }
        Some((text, costs)) => show_costs(&whole(text, costs)?, args, &config, output),
    }
}

/// Writes the schedule to the file of `--csv`, if given.
fn write_table(args: &PlanArgs, schedule: &Schedule) -> Result<()> {
    let Some(path) = args.csv.as_ref().filter(|_| ranks::speaks()) else {
        return Ok(());
    };
    // A pipe or a device takes the table as it comes.
    let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let name = path.display();
    let is_table = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    if !is_table && !is_special {
        warn(&format!(
            "--csv {name}: --schedule reads names that end in .csv: rename it"
        ));
    }
    let written = match is_special {
        true => std::fs::File::create(path)
            .and_then(|mut file| schedule.write_csv(&mut file))
            .map_err(|error| error.to_string()),
        false => gpipe_files::replace_with(path, |file| schedule.write_csv(file))
            .map_err(|error| error.into_fault().to_string()),
    };
    let fault = |words| {
        Fail::invalid(format!(
            "--csv {name}: {words}: name a file that can be written"
        ))
    };
    written.map_err(fault)
}

/// Shows the plan of a run, which may be one that `resumes`.
pub fn show_setup(
    config: &TrainConfig,
    mut setup: Setup,
    resumes: bool,
    options: ProfileOptions<'_>,
    output: OutputArgs,
) -> Result<()> {
    let forecast = setup.forecast()?;
    let speed = Speed::of(
        config,
        options,
        &[setup.costs.samples(0)],
        &mut profile::progress(output, "gpipe plan"),
    )?;
    let threads = config.pipeline.threads.get();
    let seconds = setup.step_seconds(&speed.times(&setup.costs, threads))?;
    // A run that would be refused is still shown: the plan helps to mend it.
    let data = gpipe_train::data_warnings(config);
    let faults = setup.faults(config, resumes).into_iter();
    let faults = told(faults.chain(data.as_ref().err().cloned()));
    for warning in data.unwrap_or_default() {
        warn(&with_flags(&warning));
    }
    // The processor's speed says nothing of a GPU.
    let is_told = !matches!(speed, Speed::Estimate(_)) || !config.pipeline.devices.has_gpu();
    let seconds = is_told.then_some(seconds);
    if options.measure {
        profile::show(&speed, &setup.costs, setup.schedule.devices(), output)?;
    }
    if output.json {
        let (bubble, predicted) = (forecast.bubble, seconds.map(|time| (time, speed.basis())));
        let (partition, loads) = (&setup.partition, &setup.loads);
        let event = plan_event(partition, loads, bubble, Some(forecast), predicted, faults);
        return print(&event.to_json()?);
    }
    if output.verbose {
        print(&config.to_toml()?)?;
        print("")?;
    }
    let pipeline = &config.pipeline;
    let lines = [
        ("       ", forecast.copies()),
        ("frozen ", forecast.frozen()),
        ("portals", forecast.portals()),
        ("messages", forecast.messages()),
    ];
    let lines =
        lines.map(|(name, line)| line.map_or_else(String::new, |line| format!("\n{name} {line}")));
    let largest = setup
        .memory
        .iter()
        .map(StageMemory::peak)
        .max()
        .unwrap_or(0);
    let heading = format!(
        "{}{}{}: {} layers{}, {}; {} a step\n\
         {}, {}, schedule {}, remat {}, partition {}\n",
        style::HEADING,
        printable(&config.model.name),
        style::RESET,
        setup.partition.layers(),
        match setup.costs.before() {
            0 => String::new(),
            before => format!(" ({before} before the pipeline)"),
        },
        numbers::parameters(setup.parameters, setup.trained),
        config.batch(),
        numbers::counted(pipeline.stages.u64(), "stage"),
        numbers::counted(pipeline.micro_batches.u64(), "micro-batch"),
        printable(&pipeline.schedule.to_string()),
        pipeline.remat,
        pipeline.partition,
    );
    print(&format!(
        "{heading}\n{}{}\n\n{}\n{}\n\
         bubble  {}\n\
         {}memory  {} on the largest stage, {} in all\n        {}{}",
        setup.stage_table(gpipe_train::unit(config), terminal_width()),
        setup.verdict(),
        why(&setup.cuts(config)?),
        setup.schedule.grid(terminal_width()),
        forecast.bubbles(),
        seconds.map_or_else(String::new, |seconds| {
            let source = profile::source(&speed, threads);
            format!("step    about {} ({source})\n", numbers::step_time(seconds))
        }),
        numbers::bytes(largest),
        numbers::bytes(
            forecast
                .peaks
                .iter()
                .fold(0, |sum, &peak| sum.saturating_add(peak))
        ),
        numbers::parameter_bytes(setup.parameter_bytes, setup.parameters == setup.trained),
        lines.concat(),
    ))
}

/// Shows the plan for costs of layers.
fn show_costs(
    given: &WholeCosts,
    args: &PlanArgs,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<()> {
    let (costs, pipeline) = (&given.costs, &config.pipeline);
    let stages = pipeline.stages.get();
    gpipe_train::check_stages(pipeline, costs.len())?;
    let partition = gpipe_train::cut(&pipeline.partition, costs, stages)?;
    let loads = partition.loads(costs).map_err(Fail::usage)?;
    let prices = StagePrices::of_layers(costs.clone());
    let parts = partition.ranges().map(|part| &given.layers[part]);
    let times = Costs::new(parts.map(stage_costs).collect());
    // Of the last replica, as in the plan of a model.
    let micro_batches = micro_batches_of(pipeline, pipeline.replicas.get() - 1);
    let schedule = pipeline
        .schedule
        .build(stages, micro_batches, Some(&times))?;
    write_table(args, &schedule)?;
    let timeline = simulate(&schedule, &times).map_err(Fail::usage)?;
    let bubble = timeline.bubble();
    if output.json {
        let event = plan_event(&partition, &loads, bubble, None, None, Vec::new());
        return print(&event.to_json()?);
    }
    print(&format!(
        "{loads}\n\n{}\n{}\nbubble  {} with {} ({})",
        why(&gpipe_train::cuts("", &partition, &prices, 0)?),
        schedule.grid(terminal_width()),
        numbers::percent(bubble),
        numbers::counted(schedule.micro_batches() as u64, "micro-batch"),
        given.backward,
    ))
}

/// The costs of the layers of a stage, added up.
fn stage_costs(layers: &[Described]) -> StageCosts {
    let sum = |pass: fn(&Described) -> f64| layers.iter().map(pass).sum();
    StageCosts {
        forward: sum(|layer| layer.forward),
        input_grad: sum(|layer| layer.input_grad),
        weight_grad: sum(|layer| layer.weight_grad),
        recompute: 0.0,
    }
}

/// The cut beside the best and Lingvo's, with the difference in a sentence.
fn why(cuts: &Cuts) -> String {
    let heading = ["cut", "layers", "most expensive", "above the best"];
    let rows: Vec<Vec<String>> = cuts.rows().into_iter().map(Vec::from).collect();
    let width = terminal_width();
    let text = table_within(width, &heading, &heading[..3], &rows);
    format!("{text}{}\n", wrapped(width, &cuts.explanation()))
}
