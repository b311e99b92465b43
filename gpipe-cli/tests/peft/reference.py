"""Adapters by peft: `write FOLDER` makes small models of each family with an adapter each and the losses that peft
gives, `loss MODEL ADAPTER TEXT` prints the loss of a model (with no adapter for `-`) on a text of bytes."""

import json
import os
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

# Tokens of a sample.
TIME = 16
TEXT = "Neque porro quisquam est, qui dolorem ipsum quia dolor sit amet, "

FAMILIES = {
    "gpt2": (
        lambda: GPT2LMHeadModel(
            GPT2Config(
                vocab_size=256, n_embd=16, n_head=2, n_layer=2, n_positions=32, bos_token_id=0, eos_token_id=0
            )
        ),
        # Square weights too, and layers of one end of which some have adapters.
        dict(r=3, lora_alpha=5, lora_dropout=0.1, target_modules=r".*(attn\.c_attn|1\.attn\.c_proj|0\.mlp\.c_fc)"),
    ),
    "llama": (
        lambda: LlamaForCausalLM(
            LlamaConfig(
                vocab_size=256,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=32,
                tie_word_embeddings=True,
                bos_token_id=0,
                eos_token_id=0,
            )
        ),
        dict(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]),
    ),
}


def loss(model, text):
    tokens = torch.tensor(list(text.encode()))
    assert len(tokens) % TIME == 1
    samples = torch.stack([tokens[i : i + TIME + 1] for i in range(0, len(tokens) - 1, TIME)])
    with torch.no_grad():
        logits = model.eval()(samples[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten()).item()


def write(folder):
    expected = {}
    for seed, (name, (make, lora)) in enumerate(FAMILIES.items()):
        torch.manual_seed(seed)
        model = make()
        for parameter in model.parameters():
            # Far from uniform, so that a loss tells models apart.
            torch.nn.init.normal_(parameter, std=0.3)
        base = f"{folder}/{name}/model"
        model.save_pretrained(base)
        before = loss(model, TEXT)
        adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **lora))
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(parameter, std=0.3)
        adapted.save_pretrained(f"{folder}/{name}/adapter")
        os.remove(f"{folder}/{name}/adapter/README.md")
        expected[name] = {"model": before, "adapted": loss(adapted, TEXT)}
    with open(f"{folder}/text.txt", "w") as file:
        file.write(TEXT)
    with open(f"{folder}/expected.json", "w") as file:
        json.dump(expected, file, indent=2)
        file.write("\n")


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "write":
        write(sys.argv[2])
        return
    _, _, model, adapter, text = sys.argv
    model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter != "-":
        model = PeftModel.from_pretrained(model, adapter)
    with open(text) as file:
        print(loss(model, file.read()))


main()
