//! A network for images. `transformers` has other names for the weights of such networks, so the keys are
//! our own.

use gpipe_layers::models::{ImageConfig, ModelConfig};
use serde_json::{Map, Value, json};

use super::keys::{Keys, LARGEST_SIZE, clip, dropout, shortest, size};
use crate::description::Description;

/// Its `model_type`.
pub const TYPE: &str = "gpipe_image";

/// The key of the classes' names, by number.
const NAMES: &str = "id2label";

/// The names of classes by number, of [`Description::ids`]; empty where the file has none.
pub fn class_names(ids: &Map<String, Value>) -> Vec<String> {
    let names = ids.get(NAMES).and_then(Value::as_object);
    let name = |class: usize| Some(names?.get(&class.to_string())?.as_str()?.to_owned());
    (0..).map_while(name).collect()
}

/// The key for classes of these names.
pub fn ids_of_classes(names: &[String]) -> Map<String, Value> {
    let names = names.iter().enumerate();
    let names: Map<_, _> = names
        .map(|(class, name)| (class.to_string(), json!(name)))
        .collect();
    match names.is_empty() {
        true => Map::new(),
        false => Map::from_iter([(NAMES.to_owned(), names.into())]),
    }
}

/// A network as [`write`] describes one.
pub fn read(keys: Keys) -> Result<Description, String> {
    let network = keys.network.as_deref().ok_or("has no `network`")?;
    let ids = keys.id2label.map(|names| (NAMES.to_owned(), names));
    let names = class_names(&ids.into_iter().collect());
    let classes = size("num_labels", keys.num_labels, LARGEST_SIZE)?;
    Ok(Description {
        model: ModelConfig::Image(ImageConfig {
            network: network
                .parse()
                .map_err(|fault: String| format!("network: {}", clip(&fault)))?,
            channels: size("num_channels", keys.num_channels, LARGEST_SIZE)?,
            classes,
            dropout: dropout("dropout", keys.dropout.unwrap_or(0.0))?,
        }),
        one_dropout: true,
        ids: match names.len() <= classes {
            true => ids_of_classes(&names),
            false => Map::new(),
        },
    })
}

/// The object for a network, with the names of its classes if `ids` has them.
pub fn write(config: &ImageConfig, ids: &Map<String, Value>) -> Value {
    let mut object = json!({
        "model_type": TYPE,
        "dropout": shortest(config.dropout),
        "network": config.network.to_string(),
        "num_channels": config.channels,
        "num_labels": config.classes,
        "torch_dtype": "float32",
    });
    if let Some(names) = ids.get(NAMES) {
        object[NAMES] = names.clone();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::super::{parse, write};
    use super::*;

    #[test]
    fn classes_keep_their_names() {
        let config = ImageConfig {
            network: "convnet:4".parse().unwrap(),
            channels: 3,
            classes: 2,
            dropout: 0.0,
        };
        let read = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let model = ModelConfig::Image(config.clone());
            let bytes = write(&model, &ids_of_classes(&names)).unwrap();
            let described = parse(&bytes).unwrap();
            assert_eq!(described.model, model);
            class_names(&described.ids)
        };
        assert_eq!(read(&["cat", "dog"]), ["cat", "dog"]);
        assert_eq!(read(&[]), [""; 0]);
        // More than the model has are of another model.
        assert_eq!(read(&["cat", "dog", "owl"]), [""; 0]);
    }
}
