//! A plan as an event for scripts.

use gpipe_partition::{Loads, Partition};
use gpipe_report::{Basis, Event};

use super::Forecast;

/// A plan as one object. That of a run has its `forecast`, the predicted seconds of a step where they are known, and the
/// `faults` for which `train` would refuse it; that of a list of costs has neither.
pub fn plan_event(
    partition: &Partition,
    loads: &Loads,
    bubble: f64,
    forecast: Option<Forecast>,
    predicted: Option<(f64, Basis)>,
    faults: Vec<String>,
) -> Event {
    let (step_seconds, basis) = predicted.unzip();
    let of_run = forecast.as_ref();
    let checkpoint_bytes = of_run.map(|forecast| forecast.checkpoint_bytes);
    let checkpoint_bytes = checkpoint_bytes.filter(|&bytes| bytes > 0);
    Event::Plan {
        cut: partition.sizes(),
        loads: loads.loads().to_vec(),
        optimum: loads.optimum(),
        bubble,
        step_seconds,
        parameters: of_run.map(|forecast| forecast.parameters),
        trained_parameters: of_run.map(|forecast| forecast.trained),
        portals: of_run
            .map(|forecast| forecast.portals.clone())
            .unwrap_or_default(),
        forward_only_layers: of_run.and_then(|forecast| forecast.forward_only_layers),
        message_bytes: of_run.and_then(|forecast| forecast.message_bytes),
        peak_bytes: forecast.map(|forecast| forecast.peaks),
        basis,
        checkpoint_bytes,
        faults,
    }
}
