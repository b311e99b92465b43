//! What came out, for people and for programs.

use serde_json::{Value, json};

use super::measured::{Against, Measured};
use super::model::Model;
use super::peak::Peak;
use super::summary::Summary;
use super::table::table;

/// All that was measured of a model.
pub struct Report<'a> {
    pub model: &'a Model,
    pub dtype: &'a str,
    pub threads: usize,
    pub peak: Peak,
    pub measured: Vec<Measured<'a>>,
    /// PyTorch in one process.
    pub single: Option<Summary>,
}

impl Report<'_> {
    /// FLOPs a second of a configuration: of the model, and those that were executed, where nothing is
    /// recomputed.
    fn rates(&self, measured: &Measured<'_>) -> (f64, Option<f64>) {
        let (shape, seconds) = (&self.model.shape, measured.wall.median);
        let executed = shape.executed_flops() as f64 / seconds;
        let keeps = measured.configuration.remat == "keep";
        (shape.flops() as f64 / seconds, keeps.then_some(executed))
    }

    /// What a configuration is compared with: the same in PyTorch if that was measured, or else PyTorch
    /// in one process.
    fn peer<'b>(&'b self, measured: &'b Measured<'_>) -> Option<&'b Summary> {
        match measured.configuration.stages {
            1 => self.single.as_ref(),
            _ => measured.theirs.as_ref().or(self.single.as_ref()),
        }
    }

    /// One stage with as many micro-batches that keeps as much.
    fn unpipelined(&self, measured: &Measured<'_>) -> Option<&Measured<'_>> {
        let configuration = measured.configuration;
        self.measured.iter().find(|other| {
            let other = other.configuration;
            configuration.stages > 1
                && other.stages == 1
                && other.micro_batches == configuration.micro_batches
                && other.remat == configuration.remat
        })
    }

    /// The objects of `--json`.
    pub fn json_lines(&self) -> Vec<Value> {
        let of = |measured| self.json_line(measured);
        self.measured.iter().map(of).collect()
    }

    fn json_line(&self, measured: &Measured<'_>) -> Value {
        let Measured {
            configuration,
            wall,
            cpu,
            resident,
            ..
        } = measured;
        let theirs = self.peer(measured);
        let (rate, executed) = self.rates(measured);
        let against = self
            .unpipelined(measured)
            .map(|one| Against::of(measured, one));
        measured.with_ratio(json!({
            "kind": "bench",
            "family": "training",
            "model": self.model.name,
            "dtype": self.dtype,
            "threads": self.threads,
            "stages": configuration.stages,
            "micro_batches": configuration.micro_batches,
            "schedule": configuration.schedule,
            "remat": configuration.remat,
            "steps": wall.count,
            "median_seconds": wall.median,
            "min_seconds": wall.min,
            "spread": wall.spread,
            "cpu_median_seconds": cpu.as_ref().map(|cpu| cpu.median),
            "tokens_per_second": self.model.shape.tokens() as f64 / wall.median,
            "gflops_per_second": rate / 1e9,
            "executed_gflops_per_second": executed.map(|rate| rate / 1e9),
            "fused_gflops_per_second": self.peak.fused / 1e9,
            "product_gflops_per_second": self.peak.product / 1e9,
            "peak_resident_bytes": resident,
            "peer_median_seconds": theirs.map(|theirs| theirs.median),
            "wall_of_one_stage": against.as_ref().map(|against| against.wall),
            "cpu_of_one_stage": against.as_ref().and_then(|against| against.cpu),
            "extra_seconds": against.as_ref().map(|against| against.extra),
            "extra_cpu_seconds": against.and_then(|against| against.extra_cpu),
        }))
    }

    /// The tables.
    pub fn drawn(&self, markdown: bool) -> String {
        let gap = if markdown { "\n" } else { "" };
        let mut text = format!(
            "{} in {} with {} threads; spread is that of the middle half, MB the process's peak;\n\
             ratio: median of the rounds [its interval of 90 %]\n\
             at most {}; shares of both are of the model's FLOPs / of those executed\n{gap}{}",
            self.model.name,
            self.dtype,
            self.threads,
            self.peak.named(),
            table(&self.rows(), markdown)
        );
        let against = self.against();
        if against.len() > 1 {
            text += &format!(
                "\nagainst one stage with the same micro-batches; µs a micro-batch and stage\n{gap}{}",
                table(&against, markdown)
            );
        }
        let best = self.best();
        if best.len() > 1 {
            text += &format!(
                "\nbest of each beside torch.distributed.pipelining\n{gap}{}",
                table(&best, markdown)
            );
        }
        text
    }

    /// A line for each configuration, and for PyTorch.
    fn rows(&self) -> Vec<[String; 11]> {
        let heading = [
            "",
            "median ms",
            "min ms",
            "spread",
            "CPU ms",
            "tokens/s",
            "GFLOP/s",
            "of product",
            "of FMA",
            "MB",
            "ratio",
        ];
        let mut rows = vec![heading.map(str::to_owned)];
        for measured in &self.measured {
            let (rate, executed) = self.rates(measured);
            let share = |of: f64| match executed {
                Some(executed) => {
                    format!("{:.0} / {:.0} %", 100.0 * rate / of, 100.0 * executed / of)
                }
                None => format!("{:.0} %", 100.0 * rate / of),
            };
            let [median, min, spread] = times(&measured.wall);
            let name = measured.configuration.to_string();
            rows.push([
                name.clone(),
                median,
                min,
                spread,
                said(measured.cpu.as_ref(), |cpu| milliseconds(cpu.median)),
                format!(
                    "{:.0}",
                    self.model.shape.tokens() as f64 / measured.wall.median
                ),
                format!("{:.1}", rate / 1e9),
                share(self.peak.product),
                share(self.peak.fused),
                said(measured.resident, |bytes| {
                    format!("{:.0}", bytes as f64 / 1e6)
                }),
                measured.shown_ratio(),
            ]);
            if let Some(theirs) = &measured.theirs {
                rows.push(self.peer_row(format!("PyTorch, {name}"), theirs));
            }
        }
        if let Some(single) = &self.single {
            rows.push(self.peer_row("PyTorch, one process".into(), single));
        }
        rows
    }

    fn peer_row(&self, name: String, theirs: &Summary) -> [String; 11] {
        let [median, min, spread] = times(theirs);
        let tokens = format!("{:.0}", self.model.shape.tokens() as f64 / theirs.median);
        let rate = format!(
            "{:.1}",
            self.model.shape.flops() as f64 / theirs.median / 1e9
        );
        let mut row: [String; 11] = Default::default();
        [row[0], row[1], row[2], row[3], row[5], row[6]] =
            [name, median, min, spread, tokens, rate];
        row
    }

    /// What stages cost: a line for each configuration of several whose like of one was measured.
    fn against(&self) -> Vec<[String; 5]> {
        let heading = ["", "wall ratio", "CPU ratio", "µs", "µs of CPU"];
        let mut rows = vec![heading.map(str::to_owned)];
        for measured in &self.measured {
            let Some(one) = self.unpipelined(measured) else {
                continue;
            };
            let found = Against::of(measured, one);
            let micro = |seconds: f64| format!("{:.1}", 1e6 * seconds);
            rows.push([
                measured.configuration.to_string(),
                format!("{:.3}", found.wall),
                said(found.cpu, |ratio| format!("{ratio:.3}")),
                micro(found.extra),
                said(found.extra_cpu, micro),
            ]);
        }
        rows
    }

    /// For each number of stages and policy, the fastest of ours beside the fastest of PyTorch's.
    fn best(&self) -> Vec<[String; 6]> {
        let heading = ["", "best", "ms", "PyTorch's best", "ms", "ratio"];
        let mut rows = vec![heading.map(str::to_owned)];
        let mut kinds: Vec<(usize, &str)> = Vec::new();
        for Measured {
            configuration,
            theirs,
            ..
        } in &self.measured
        {
            let kind = (configuration.stages, configuration.remat.as_str());
            if theirs.is_some() && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        for (stages, remat) in kinds {
            let alike = || {
                self.measured.iter().filter(move |measured| {
                    let configuration = measured.configuration;
                    (configuration.stages, configuration.remat.as_str()) == (stages, remat)
                })
            };
            let fastest = |of: &dyn Fn(&Measured<'_>) -> Option<f64>| {
                let known = alike().filter_map(|measured| Some((measured, of(measured)?)));
                known.min_by(|a, b| a.1.total_cmp(&b.1))
            };
            let ours = fastest(&|measured| Some(measured.wall.median));
            let theirs = fastest(&|measured| Some(measured.theirs.as_ref()?.median));
            let (Some((ours, our_time)), Some((theirs, their_time))) = (ours, theirs) else {
                continue;
            };
            let name = |measured: &Measured<'_>| {
                let configuration = measured.configuration;
                format!(
                    "{} M={}",
                    configuration.schedule, configuration.micro_batches
                )
            };
            rows.push([
                format!("K={stages} {remat}"),
                name(ours),
                milliseconds(our_time),
                name(theirs),
                milliseconds(their_time),
                format!("{:.3}", our_time / their_time),
            ]);
        }
        rows
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn times(summary: &Summary) -> [String; 3] {
    let spread = format!("{:.1} %", summary.spread * 100.0);
    [
        milliseconds(summary.median),
        milliseconds(summary.min),
        spread,
    ]
}

fn said<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(String::new, show)
}

#[cfg(test)]
mod tests;
