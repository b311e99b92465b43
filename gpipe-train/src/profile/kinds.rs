//! Kinds of layers: equal layers are measured once.

use gpipe_layers::{Flow, Layer};
use gpipe_remat::ModelCosts;
use gpipe_tensor::Precision;

use crate::error::{Error, Result};

/// The layers of a model, grouped by kind.
#[derive(Debug)]
pub struct Kinds {
    /// The kinds, in the order of their first layers.
    pub list: Vec<Kind>,
    /// The index of the kind of each layer.
    pub of_layer: Vec<usize>,
}

/// A group of layers with equal times.
#[derive(Debug)]
pub struct Kind {
    /// Everything that determines their time, except the machine.
    pub key: String,
    /// Their name, with `*` for numbers.
    pub name: String,
    /// The index of the first layer.
    pub layer: usize,
    /// The number of layers.
    pub count: usize,
}

impl Kinds {
    /// Groups layers; `input` gives the tensors that enter the first one, by number of samples.
    ///
    /// # Errors
    /// [`Error::Input`] if the layers do not fit together.
    pub fn of(
        layers: &[Box<dyn Layer>],
        precision: Precision,
        input: impl Fn(usize) -> Vec<Flow>,
    ) -> Result<Self> {
        let costs = |samples| {
            let all = gpipe_remat::micro_batches(samples, 1)?;
            ModelCosts::new(layers, &all, &input)
        };
        // A normalization may have no variance over one sample.
        let costs = costs(1).or_else(|_| costs(2)).map_err(Error::input)?;
        let mut kinds = Self {
            list: Vec::new(),
            of_layer: Vec::new(),
        };
        for (index, layer) in layers.iter().enumerate() {
            let cost = &costs.of(0)[index];
            let name = pattern(layer.name());
            let takes: Vec<String> = costs
                .flow(0, index)
                .iter()
                .take(layer.arity())
                .map(ToString::to_string)
                .collect();
            // The first layer has no input gradient, and the last is timed with the loss.
            let place = match index {
                0 => " first",
                last if last + 1 == layers.len() => " last",
                _ => "",
            };
            let flops = [cost.forward, cost.input_grad, cost.weight_grad];
            let key = format!(
                "{name}{place} of {} by {precision}: {flops:?} FLOPs, {} parameter bytes, {} bytes saved",
                takes.join(" "),
                cost.params,
                cost.memory.saved_own
            );
            let known = kinds.list.iter().position(|kind| kind.key == key);
            let kind = known.unwrap_or_else(|| {
                kinds.list.push(Kind {
                    key,
                    name,
                    layer: index,
                    count: 0,
                });
                kinds.list.len() - 1
            });
            kinds.list[kind].count += 1;
            kinds.of_layer.push(kind);
        }
        Ok(kinds)
    }
}

/// Replaces the numeric parts of a name by `*`.
fn pattern(name: &str) -> String {
    let part = |part: &str| match part.parse::<u64>() {
        Ok(_) => "*".to_owned(),
        Err(_) => part.to_owned(),
    };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use gpipe_layers::models::{self, ImageConfig, ModelConfig};

    use super::*;

    /// At 32 pixels the last normalizations have one pixel a sample, of which there is no variance.
    #[test]
    fn a_resnet_of_small_images_has_kinds() {
        let model = ModelConfig::Image(ImageConfig {
            network: "resnet18".parse().unwrap(),
            channels: 3,
            classes: 10,
            dropout: 0.0,
        });
        let layers = model.layers().unwrap();
        let kinds = Kinds::of(&layers, Precision::Single, |n| model.input(n, 32)).unwrap();
        assert_eq!(kinds.of_layer.len(), layers.len());
    }

    #[test]
    fn blocks_are_alike_and_ends_are_not() {
        let config = models::preset("gpt-nano").unwrap().config;
        let layers = models::gpt(&config).unwrap();
        let kinds = Kinds::of(&layers, Precision::Single, |n| vec![Flow::u32([n, 16])]).unwrap();
        let named: Vec<(&str, usize)> = kinds
            .list
            .iter()
            .map(|kind| (&*kind.name, kind.count))
            .collect();
        let block = config.blocks;
        assert!(
            named.contains(&("transformer.h.*.attn", block)),
            "{named:?}"
        );
        assert!(named.contains(&("transformer.h.*.mlp", block)), "{named:?}");
        assert_eq!(kinds.of_layer.len(), layers.len());
        assert!(kinds.list[0].key.contains(" first of"));
        let last = kinds.list.last().unwrap();
        assert!(last.key.contains(" last of") && last.count == 1);
        // Another length of samples is another kind.
        let longer = Kinds::of(&layers, Precision::Single, |n| vec![Flow::u32([n, 32])]).unwrap();
        assert!(
            longer
                .list
                .iter()
                .all(|kind| kinds.list.iter().all(|k| k.key != kind.key))
        );
    }
}
