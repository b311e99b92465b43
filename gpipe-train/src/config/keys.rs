//! Merging the layers of a configuration.

use toml::{Table, Value};

use super::devices::Devices;
use crate::error::{Error, Result};

/// A key with its value and its origin.
pub struct Entry {
    /// The origin for error messages, such as `--stages 0` or `gpipe.toml line 7`.
    pub place: String,
    /// The section, such as `pipeline`.
    pub section: String,
    /// The key within the section, such as `stages`.
    pub key: String,
    /// A value of the type of the key.
    pub value: Value,
}

/// Merges `upper` into `lower`, recursively; `upper` wins.
pub fn overlay(lower: &mut Table, upper: Table) {
    for (name, value) in upper {
        match (lower.get_mut(&name), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => overlay(lower, upper),
            (_, value) => {
                lower.insert(name, value);
            }
        }
    }
}

/// Some or all keys of a configuration.
#[derive(Clone, Default)]
pub struct Keys(pub Table);

impl Keys {
    /// Whether a key has a value.
    pub fn has(&self, section: &str, key: &str) -> bool {
        self.get(section, key).is_some()
    }

    /// The value of a key.
    pub fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.0.get(section)?.get(key)
    }

    /// The value of an integer key.
    pub fn number(&self, section: &str, key: &str) -> Option<i64> {
        self.get(section, key)?.as_integer()
    }

    /// The value of a text key.
    pub fn text(&self, section: &str, key: &str) -> Option<&str> {
        self.get(section, key)?.as_str()
    }

    /// Sets a key, replacing its value.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let one = Table::from_iter([(key.to_owned(), value.into())]);
        overlay(
            &mut self.0,
            Table::from_iter([(section.to_owned(), Value::Table(one))]),
        );
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, section: &str, key: &str) -> Option<Value> {
        self.0.get_mut(section)?.as_table_mut()?.remove(key)
    }

    /// The value of `pipeline.devices`.
    pub fn devices(&self) -> Option<Devices> {
        self.text("pipeline", "devices")?.parse().ok()
    }

    /// Merges a layer of entries over the earlier ones. A key removes the keys of earlier layers that
    /// it determines: a model its sizes, an optimizer the keys that it does not have, a folder of adapters or a rank of 0 their settings, a list of workers the number of stages, a number of
    /// micro-batches their size, and vice versa.
    pub fn merge(&mut self, layer: Vec<Entry>) -> Result<()> {
        let mut upper = Self::default();
        for Entry {
            section,
            key,
            value,
            ..
        } in layer
        {
            upper.set(&section, &key, value);
        }
        let has = |key| upper.has("pipeline", key);
        let cuts_batch = [has("micro_batches"), has("micro_batch_size")];
        if cuts_batch == [true; 2] {
            return Err(Error::invalid(
                "pipeline.micro_batches and pipeline.micro_batch_size: give one of the two",
            ));
        }
        if cuts_batch != [false; 2] {
            self.remove("pipeline", "micro_batches");
            self.remove("pipeline", "micro_batch_size");
        }
        if has("devices") {
            self.remove("pipeline", "stages");
        } else if has("stages")
            && self
                .devices()
                .is_some_and(|devices| devices.repeated().is_none())
        {
            self.remove("pipeline", "devices");
        }
        let [known, new] = [&*self, &upper].map(|keys| keys.text("model", "name"));
        if known.is_some() && new.is_some() && known != new {
            self.0.remove("model");
        }
        let [known, new] = [&*self, &upper].map(|keys| keys.text("optimizer", "name"));
        let strange: &[&str] = match new.filter(|&new| known.unwrap_or("adamw") != new) {
            Some("adamw") => &["alpha", "momentum", "nesterov"],
            Some("sgd") => &["alpha", "beta1", "beta2", "eps"],
            Some("rmsprop") => &["nesterov", "beta1", "beta2"],
            _ => &[],
        };
        for key in strange {
            self.remove("optimizer", key);
        }
        // It says what the adapters are, or that there are none.
        if upper.has("lora", "adapter") || upper.number("lora", "rank") == Some(0) {
            self.0.remove("lora");
        }
        overlay(&mut self.0, upper.0);
        Ok(())
    }
}
