//! The tensors of a checkpoint, in whichever files ranks wrote them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gpipe_tensor::{DeviceId, Host, safetensors};

/// The folders of a checkpoint with the parameters, and with the optimizer states.
pub const ALL: &[&str] = &["model", "."];

/// The bits of the tensors in folders of a checkpoint, by name.
pub fn tensors(checkpoint: &Path, folders: &[&str]) -> BTreeMap<String, Vec<u32>> {
    let host = Host::new(1).expect("a host");
    let device = host.device(DeviceId::Cpu).expect("a processor");
    let mut tensors = BTreeMap::new();
    let entries = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(checkpoint.join(folder)).expect("a checkpoint");
        entries.map(|entry| entry.expect("a file").path())
    });
    for path in entries {
        if path.extension().is_none_or(|of| of != "safetensors") {
            continue;
        }
        let bytes = fs::read(&path).expect("a file");
        for (name, tensor) in safetensors::load(&bytes, &device).expect("tensors") {
            let values = tensor.to_f32s().expect("numbers").into_iter();
            let before = tensors.insert(name, values.map(f32::to_bits).collect());
            assert!(before.is_none(), "{path:?} holds a tensor of another file");
        }
    }
    assert!(!tensors.is_empty(), "no tensors in {checkpoint:?}");
    tensors
}
