//! Whether a model that can be trained can be saved too.

use gpipe_hf::Companions;
use gpipe_tensor::{Shape, safetensors};

use super::Setup;
use crate::config::TrainConfig;
use crate::error::{Error, Result};

impl Setup {
    /// Fails for a model whose checkpoints could not be written: it is refused before it is trained.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the headers of its files would be longer than any that is read,
    /// [`Error::Input`] if there is no `config.json` for it.
    pub(crate) fn check_saveable(
        &mut self,
        config: &TrainConfig,
        companions: &Companions,
    ) -> Result<()> {
        if config.run.keep.get() == 0 {
            return Ok(());
        }
        gpipe_hf::files_beside_weights(&config.model.config(), companions)?;
        let values = self.owners();
        let kinds = self.optimizer.state_names();
        let states = values.iter().flat_map(|(name, shape)| {
            kinds
                .iter()
                .map(move |kind| (format!("{name}.{kind}"), shape.clone()))
        });
        let longest = header_bytes(values.iter().cloned()).max(header_bytes(states));
        if longest <= safetensors::LONGEST {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a checkpoint would have {longest} bytes of names and shapes of {} tensors in one file, more than the \
             {} that are read: use fewer layers, or `run.keep = 0` to save nothing",
            values.len(),
            safetensors::LONGEST
        )))
    }
}

/// Bytes of the header of the safetensors file of a model with these single-precision tensors; that of the
/// optimizer's state, without a pair of its own, is a few bytes shorter.
fn header_bytes(tensors: impl Iterator<Item = (String, Shape)>) -> u64 {
    const OWN: &str = r#"{"__metadata__":{"format":"pt"}}"#;
    const ALIGNED: usize = 8;
    let mut tensors: Vec<(String, Shape)> = tensors.collect();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut bytes, mut end) = (OWN.len(), 0_u64);
    for (name, shape) in tensors {
        let begin = end;
        // More than fit are refused with the memory; these are digits alone.
        let bytes_of = |bytes: u64, &dim: &usize| bytes.saturating_mul(dim as u64);
        let tensor = shape.dims().iter().fold(size_of::<f32>() as u64, bytes_of);
        end = end.saturating_add(tensor);
        let dims: Vec<String> = shape.dims().iter().map(usize::to_string).collect();
        let dims = dims.join(",");
        let entry = format!(
            r#","{name}":{{"dtype":"F32","shape":[{dims}],"data_offsets":[{begin},{end}]}}"#
        );
        bytes += entry.len();
    }
    bytes.next_multiple_of(ALIGNED) as u64
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host, Tensor};

    use super::*;
    use crate::config::{Overrides, Setting};

    #[test]
    fn the_header_is_as_long_as_that_of_the_file() {
        let host = Host::new(1).unwrap();
        let device = host.device(DeviceId::Cpu).unwrap();
        for count in [0, 1, 7, 120] {
            let named = (0..count).map(|i| (format!("h.{i}.weight"), Shape::from([i + 1, 3])));
            let tensors = named.clone().map(|(name, shape)| {
                let values = vec![0.0; shape.dims().iter().product()];
                (name, Tensor::from_f32(&device, shape, values).unwrap())
            });
            let tensors: Vec<(String, Tensor)> = tensors.collect();
            let metadata = [("format".to_owned(), "pt".to_owned())];
            let file = safetensors::save(&tensors, &metadata).unwrap();
            let length = u64::from_le_bytes(file[..8].try_into().unwrap());
            assert_eq!(header_bytes(named), length, "{count} tensors");
        }
    }

    /// The check comes before that of memory.
    #[test]
    fn sizes_beyond_64_bits_do_not_overflow() {
        let beyond = |name: &str, dims: [usize; 2]| (name.to_owned(), Shape::from(dims));
        let named = [beyond("a", [usize::MAX, 2]), beyond("b", [usize::MAX, 1])];
        assert!(header_bytes(named.into_iter()) < 256);
    }

    #[test]
    fn a_model_that_cannot_be_saved_is_refused_before_it_is_trained() {
        let config = |blocks: i64, keep: i64| {
            let settings = vec![
                Setting::new("model.blocks", blocks),
                Setting::new("model.width", 4),
                Setting::new("model.heads", 1),
                Setting::new("run.keep", keep),
            ];
            Overrides::new().layer(settings).unwrap().resolve().unwrap()
        };
        let checked = |config: &TrainConfig| {
            let mut setup = Setup::new(config).unwrap();
            setup.check_saveable(config, &Companions::default())
        };
        checked(&config(100, 1)).unwrap();
        let error = checked(&config(10_000, 1)).unwrap_err();
        assert!(error.is_input_error());
        let told = error.to_string();
        assert!(
            told.contains("120004 tensors") && told.contains("`run.keep = 0`"),
            "{told}"
        );
        checked(&config(10_000, 0)).unwrap();
    }
}
