//! Keys that were typed, laid over each other layer by layer.

use toml::{Table, Value};

use super::devices::Devices;
use crate::error::{Error, Result};

/// A key with a value, and where it was typed: what an error can point to.
pub struct Entry {
    /// Such as `--stages 0` or `gpipe.toml line 7`.
    pub place: String,
    /// Such as `pipeline`.
    pub section: String,
    /// Such as `stages`.
    pub key: String,
    /// Of the kind that the key has.
    pub value: Value,
}

/// Lays `upper` over `lower`, key by key.
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

    /// The value of a key, if it has one.
    pub fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.0.get(section)?.get(key)
    }

    /// The whole number that a key has.
    pub fn number(&self, section: &str, key: &str) -> Option<i64> {
        self.get(section, key)?.as_integer()
    }

    /// The text that a key has.
    pub fn text(&self, section: &str, key: &str) -> Option<&str> {
        self.get(section, key)?.as_str()
    }

    /// Gives a key a value, in place of the one that it may have.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let one = Table::from_iter([(key.to_owned(), value.into())]);
        overlay(
            &mut self.0,
            Table::from_iter([(section.to_owned(), Value::Table(one))]),
        );
    }

    /// Takes a key away, with its value.
    pub fn remove(&mut self, section: &str, key: &str) -> Option<Value> {
        self.0.get_mut(section)?.as_table_mut()?.remove(key)
    }

    /// The listed workers, unless none were listed.
    pub fn devices(&self) -> Option<Devices> {
        self.text("pipeline", "devices")?.parse().ok()
    }

    /// Lays one layer of entries over those before it. A key that says in other words what an
    /// earlier layer said replaces it: another model its sizes, workers the number of stages,
    /// micro-batches their size, and the other way round.
    pub fn lay(&mut self, layer: Vec<Entry>) -> Result<()> {
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
        let says = |key| upper.has("pipeline", key);
        let cuts_batch = [says("micro_batches"), says("micro_batch_size")];
        if cuts_batch == [true; 2] {
            return Err(Error::invalid(
                "pipeline.micro_batches and pipeline.micro_batch_size: give one of the two",
            ));
        }
        if cuts_batch != [false; 2] {
            self.remove("pipeline", "micro_batches");
            self.remove("pipeline", "micro_batch_size");
        }
        if says("devices") {
            self.remove("pipeline", "stages");
        } else if says("stages")
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
        overlay(&mut self.0, upper.0);
        Ok(())
    }
}
