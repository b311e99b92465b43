//! `model.safetensors.index.json`: which file has which weights.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::error::Error;

/// Which file has which weights.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Index {
    /// The file of each tensor, by its name.
    pub weight_map: BTreeMap<String, String>,
}

/// What the bytes of a `model.safetensors.index.json` say. Every file is a plain name: it lies beside
/// the index.
///
/// # Errors
/// [`Error::Malformed`] for what is no index or leads elsewhere.
pub fn parse_index(bytes: &[u8]) -> crate::Result<Index> {
    parse(bytes).map_err(Error::Malformed)
}

/// What these bytes say, or what is wrong with them.
pub(crate) fn parse(bytes: &[u8]) -> Result<Index, String> {
    let index: Index = serde_json::from_slice(bytes).map_err(|error| {
        let message: String = error.to_string().chars().take(200).collect();
        format!("cannot be read: {message}")
    })?;
    for name in index.weight_map.values() {
        let plain = name.ends_with(".safetensors")
            && !name.starts_with('.')
            && !name
                .chars()
                .any(|c| matches!(c, '/' | '\\' | ':') || c.is_control());
        if !plain {
            let name: String = name.chars().take(200).collect();
            return Err(format!(
                "names the file `{name}`: only files beside it can be read, whose names end in .safetensors"
            ));
        }
    }
    Ok(index)
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Index;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object with `weight_map`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
                let mut weights = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "weight_map" {
                        map.next_value::<IgnoredAny>()?;
                    } else if weights.replace(map.next_value::<WeightMap>()?).is_some() {
                        return Err(A::Error::duplicate_field("weight_map"));
                    }
                }
                let WeightMap(weight_map) =
                    weights.ok_or_else(|| A::Error::missing_field("weight_map"))?;
                Ok(Index { weight_map })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

struct WeightMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensor and file names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut weights = BTreeMap::new();
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    if weights.contains_key(&tensor) {
                        return Err(A::Error::custom(format!(
                            "the tensor `{tensor}` occurs twice"
                        )));
                    }
                    weights.insert(tensor, file);
                }
                Ok(WeightMap(weights))
            }
        }
        deserializer.deserialize_map(Object)
    }
}
