//! gpipe's own JSON format: layers, and optionally the batch, the workers and the link.

use std::fmt;

use gpipe_remat::Bytes;
use gpipe_remat::planner::{Described, Link, Worker};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::cost_file::CostFile;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    layers: Vec<Layer>,
    batch: Option<usize>,
    workers: Option<Vec<Workers>>,
    link: Option<Between>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    name: Option<String>,
    forward: f64,
    backward: Option<f64>,
    input_grad: Option<f64>,
    weight_grad: Option<f64>,
    #[serde(default)]
    parameters: Amount,
    #[serde(default)]
    optimizer: Amount,
    #[serde(default)]
    saved: Amount,
    #[serde(default)]
    output: Amount,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workers {
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "even")]
    speed: f64,
    memory: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Between {
    #[serde(default)]
    latency: f64,
    bytes_per_second: f64,
}

/// Bytes as a number, or as text with a unit.
#[derive(Clone)]
enum Amount {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes: a whole number from 0 up, or text such as \"8GiB\"")
            }

            fn visit_u64<E>(self, bytes: u64) -> Result<Amount, E> {
                Ok(Amount::Number(bytes))
            }

            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Bytes)
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Amount {
    fn bytes(self) -> Result<u64, String> {
        match self {
            Self::Number(bytes) => Ok(bytes),
            Self::Text(text) => text
                .parse()
                .map(|Bytes(bytes)| bytes)
                .map_err(|error| error.to_string()),
        }
    }
}

fn one() -> usize {
    1
}

fn even() -> f64 {
    1.0
}

/// Parses the text of a file.
pub fn parse(text: &str) -> Result<CostFile, String> {
    let file: File = serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => error.to_string(),
        false => format!("not JSON: {error}"),
    })?;
    if let Some(batch) = file.batch
        && !(1..=u32::MAX as usize).contains(&batch)
    {
        let most = u32::MAX;
        return Err(format!(
            "the batch has {batch} samples: use a whole number from 1 to {most}"
        ));
    }
    if file.workers.as_ref().is_some_and(Vec::is_empty) {
        return Err("there are no workers: list one, or leave the key out".to_owned());
    }
    let mut layers = Vec::with_capacity(file.layers.len());
    for (index, layer) in file.layers.into_iter().enumerate() {
        layers.push(layer_costs(index, layer)?);
    }
    let mut workers = file.workers.as_ref().map(|_| Vec::new());
    for line in file.workers.into_iter().flatten() {
        let memory = line.memory.map(Amount::bytes).transpose()?;
        let worker = Worker {
            speed: line.speed,
            memory,
        };
        if line.count == 0 || line.count > 1000 {
            return Err(format!("{} workers of one kind: use 1 to 1000", line.count));
        }
        let all = std::iter::repeat_n(worker, line.count);
        workers.get_or_insert_default().extend(all);
    }
    Ok(CostFile {
        layers,
        batch: file.batch,
        workers,
        link: file.link.map(|link| Link {
            latency: link.latency,
            bytes_per_second: link.bytes_per_second,
        }),
    })
}

fn layer_costs(index: usize, layer: Layer) -> Result<Described, String> {
    let name = layer.name.unwrap_or_else(|| format!("layer {index}"));
    let (input_grad, weight_grad) = match (layer.backward, layer.input_grad, layer.weight_grad) {
        (Some(both), None, None) => (both / 2.0, both / 2.0),
        (None, Some(input_grad), Some(weight_grad)) => (input_grad, weight_grad),
        (None, None, None) => (layer.forward, layer.forward),
        _ => {
            return Err(format!(
                "layer {index} ({name}): give `backward`, or both `input_grad` and `weight_grad`"
            ));
        }
    };
    for seconds in [layer.forward, input_grad, weight_grad] {
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(format!(
                "layer {index} ({name}) costs {seconds}: use a finite number from 0 up"
            ));
        }
    }
    let of = |what: &str, amount: Amount| {
        let bytes = amount.bytes();
        bytes.map_err(|fault| format!("layer {index} ({name}), {what}: {fault}"))
    };
    Ok(Described {
        forward: layer.forward,
        input_grad,
        weight_grad,
        parameters: of("parameters", layer.parameters)?,
        optimizer: of("optimizer", layer.optimizer)?,
        saved: of("saved", layer.saved)?,
        output: of("output", layer.output)?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_workers_and_links_are_read() {
        let text = r#"{"batch": 8, "layers": [
            {"forward": 1.0},
            {"name": "b", "forward": 2, "backward": 3, "parameters": "1KiB", "output": 64},
            {"forward": 1, "input_grad": 1, "weight_grad": 0, "saved": 12}],
            "workers": [{"count": 2, "memory": "1MiB"}, {"speed": 0.5}],
            "link": {"bytes_per_second": 1e9}}"#;
        let read = parse(text).unwrap();
        assert_eq!((read.layers.len(), read.batch), (3, Some(8)));
        assert_eq!(read.layers[1].parameters, 1024);
        assert_eq!(
            (read.layers[1].input_grad, read.layers[0].weight_grad),
            (1.5, 1.0)
        );
        let workers = read.workers.unwrap();
        assert_eq!(workers.len(), 3);
        assert_eq!((workers[1].memory, workers[2].speed), (Some(1 << 20), 0.5));
        assert_eq!(read.link.unwrap().latency, 0.0);
    }

    #[test]
    fn an_error_names_the_fault() {
        let cases = [
            ("{", "EOF"),
            (
                r#"{"layers": [{"forward": -1}]}"#,
                "layer 0 (layer 0) costs -1",
            ),
            (r#"{"layers": [{"forward": 1e999}]}"#, "out of range"),
            (r#"{"layers": [{}]}"#, "missing field `forward`"),
            (
                r#"{"layers": [{"forward": 1, "input_grad": 1}]}"#,
                "give `backward`",
            ),
            (
                r#"{"layers": [{"forward": 1, "cost": 1}]}"#,
                "unknown field `cost`",
            ),
            (
                r#"{"layers": [{"forward": 1, "saved": "x"}]}"#,
                "no amount of memory",
            ),
            (
                r#"{"layers": [], "workers": [{"count": 0}]}"#,
                "use 1 to 1000",
            ),
            (r#"{"layers": [], "workers": []}"#, "no workers: list one"),
            (r#"{"layers": [], "batch": 0}"#, "from 1 to 4294967295"),
            (r#"{"layers": [], "batch": 4294967296}"#, "from 1 to"),
        ];
        for (text, words) in cases {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }
}
