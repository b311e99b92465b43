//! Adapters of linear layers (LoRA), in the format of `peft`.

/// Whether a parameter of this name belongs to an adapter
/// ([`Linear::with_lora`](gpipe_layers::layers::Linear::with_lora)).
pub fn is_adapter(name: &str) -> bool {
    name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight")
}
