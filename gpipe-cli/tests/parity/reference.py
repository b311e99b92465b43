"""PyTorch's side of `cargo xtask parity`: what models of transformers do with the same batches.

    python reference.py write DIR          a small GPT-2 of bytes (model/) and its text (text.txt)
    python reference.py write-llama DIR    the same for a Llama; write-llama3, write-qwen2, write-qwen3, write-mistral,
                                           write-gemma3:
                                           for its relatives
    python reference.py write-tokens DIR   the same with a tokenizer of 500 tokens (tokens.json: what it
                                           makes of some texts)
    python reference.py train DIR          trains it; losses and gradient norms as JSON on stdout
    python reference.py compare DIR A B    the largest difference of the logits of two folders
    python reference.py score DIR FOLDER PROMPT
                                           log-probabilities that FOLDER gives to tokens on stdin, after the prompt
    python reference.py beams DIR          texts that `generate(num_beams)` finds

The recipe is that of `gpipe train --no-shuffle`: sample i is the window of T + 1 tokens from i * T
on, step b takes the samples b * B to b * B + B - 1. AdamW decays either every parameter ("all") or
only those of two extents ("matrices"), which are gpipe's two options for `optimizer.decay`.
"""

import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, Gemma3TextConfig, LlamaConfig, MistralConfig,
    PreTrainedTokenizerFast, Qwen2Config, Qwen3Config,
)

STEPS, BATCH, TIME = 8, 8, 32
LEARNING_RATE, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
WORDS = "the a one pipe stage batch layer loss moves fills drains waits before after and or slowly".split()


def write(folder):
    config = GPT2Config(
        vocab_size=256, n_positions=64, n_embd=48, n_layer=5, n_head=3,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )
    torch.manual_seed(20)
    # Half precision keeps the recorded folder small; both sides begin with the rounded values.
    GPT2LMHeadModel(config).half().save_pretrained(folder / "model")
    write_text(folder)


def write_text(folder):
    choose = random.Random(20)
    text = ""
    while len(text) <= STEPS * BATCH * TIME:
        text += " ".join(choose.choice(WORDS) for _ in range(choose.randint(3, 9))).capitalize() + ".\n"
    (folder / "text.txt").write_text(text)


# Weights that are far from uniform tell a wrong bias, window or head from a right one, and beams from each other.
LLAMA = dict(
    vocab_size=256, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, initializer_range=0.25, bos_token_id=None,
    # Many tokens that end a text, so that some do.
    eos_token_id=[10, *range(32, 64)],
)
RELATIVES = {
    "llama": lambda: LlamaConfig(**LLAMA, tie_word_embeddings=False),
    # Of the four pairs of a head, one turns as it did, one a bit slower, two eight times slower.
    "llama3": lambda: LlamaConfig(
        **{**LLAMA, "max_position_embeddings": 512}, tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 96,
        },
    ),
    "qwen2": lambda: Qwen2Config(**LLAMA, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(**{**LLAMA, "head_dim": 12}, tie_word_embeddings=True),
    "mistral": lambda: MistralConfig(**LLAMA, tie_word_embeddings=False, sliding_window=12),
    # The second of three blocks sees all positions.
    "gemma3": lambda: Gemma3TextConfig(
        **{**LLAMA, "head_dim": 4, "eos_token_id": [21]}, query_pre_attn_scalar=4, sliding_window=7, sliding_window_pattern=2, pad_token_id=None,
    ),
}


def write_relative(folder, config):
    torch.manual_seed(22)
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            # They begin as zeros.
            torch.nn.init.normal_(parameter, std=0.25)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            # They begin as ones, or as their differences from 1.
            mean = 0.0 if config.model_type == "gemma3_text" else 1.0
            torch.nn.init.normal_(parameter, mean=mean, std=0.25)
    model.half().save_pretrained(folder / "model")
    write_text(folder)


# What tokenizers stumble over.
TEXTS = [
    "", " ", "\n", "the pipe drains", " the  pipe   drains \n\n\t and ", "a\r\nb\r\n", "don't we'll I'VE",
    "1234567890 3.14159 1e-5", "Grüße, naïve Čeština; Ελληνικά; русский; 日本語; עברית", "e\u0301 \u00e9 \ufb01",
    "👩‍👩‍👧 🏳️‍🌈 👍🏽🙂", "\u00a0\u2003\u200b\ufeff", "\x00\x01\x7f", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "<|endoftext|>",
    "the<|endoftext|> <|endoftext|>a <|endoftext", "_a__b-c==d!!! (e) [f] {g}", "\U00010348\U000e0001",
]


def write_tokens(folder):
    choose = random.Random(21)
    syllable = lambda: choose.choice("bcdfglmnprstv") + choose.choice(["a", "e", "i", "o", "u", "ae", "ü"])
    words = ["".join(syllable() for _ in range(choose.randint(1, 4))) for _ in range(300)]
    text = ""
    while len(text) <= 7500:
        # The first words come most often.
        line = " ".join(words[int(300 * choose.random() ** 2)] for _ in range(choose.randint(3, 9)))
        text += line.capitalize() + ".\n"
    (folder / "text.txt").write_text(text)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([text], trainer)
    end = tokenizer.token_to_id("<|endoftext|>")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder / "model")
    # Without spaces between its parts it is half as long.
    tokenizer.save(str(folder / "model" / "tokenizer.json"), pretty=False)

    config = GPT2Config(
        vocab_size=500, n_positions=64, n_embd=8, n_layer=2, n_head=2,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=end, eos_token_id=end,
    )
    torch.manual_seed(21)
    GPT2LMHeadModel(config).half().save_pretrained(folder / "model")
    said = [[text, tokenizer.encode(text).ids] for text in TEXTS]
    decoded = [[ids, tokenizer.decode(ids, skip_special_tokens=False)] for ids in (
        [choose.randrange(500) for _ in range(choose.randint(1, 12))] for _ in range(40)
    )]
    (folder / "tokens.json").write_text(json.dumps({"encoded": said, "decoded": decoded}) + "\n")


def load(folder):
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def encoded(model, text):
    """The tokens of a text for a model in a folder: bytes where it has no tokenizer."""
    if (Path(model) / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(model)(text)["input_ids"]
    return list(text.encode())


def tokens(folder, model=None):
    return torch.tensor(encoded(model or folder / "model", (folder / "text.txt").read_text()))


def groups(model, decay):
    if decay == "all":
        return [{"params": list(model.parameters()), "weight_decay": DECAY}]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]


def train(folder, decay):
    model = load(folder / "model").train()
    optimizer = torch.optim.AdamW(groups(model, decay), lr=LEARNING_RATE, betas=BETAS, eps=EPS)
    data, losses, norms = tokens(folder), [], []
    for step in range(STEPS):
        windows = torch.stack([
            data[i * TIME : i * TIME + TIME + 1] for i in range(step * BATCH, (step + 1) * BATCH)
        ])
        logits = model(windows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    model.save_pretrained(folder / f"trained-{decay}")
    return {"losses": losses, "grad_norms": norms}


@torch.no_grad()
def compare(folder, left, right):
    # The first is PyTorch's, without a tokenizer of its own; what was saved brings its own if it has one.
    assert tokens(folder).equal(tokens(folder, right)), "the tokenizers differ"
    windows = tokens(folder)[: 8 * TIME].view(8, TIME)
    difference = (load(left)(windows).logits - load(right)(windows).logits).abs().max().item()
    stored = sorted(load_file(Path(right) / "model.safetensors"))
    return {"difference": difference, "tensors": len(stored), "head_stored": "lm_head.weight" in stored}


@torch.no_grad()
def score(folder, prompt):
    model, scores = load(folder), []
    prompt = encoded(folder, prompt)
    for line in sys.stdin:
        known, chosen = json.loads(line)
        known = (prompt + known)[-model.config.max_position_embeddings :]
        logits = model(torch.tensor([known])).logits[0, -1]
        scores.append(logits.log_softmax(0)[chosen].item())
    return scores


@torch.no_grad()
def beams(folder):
    model, cases = load(folder / "model"), []
    for prompt in ["The pipe", "a", "stages of 7 layers"]:
        for beams in [1, 2, 4]:
            for count in [3, 12]:
                ids = torch.tensor([list(prompt.encode())])
                text = model.generate(
                    ids, attention_mask=torch.ones_like(ids), num_beams=beams, max_new_tokens=count, do_sample=False,
                    pad_token_id=0,
                )[0, ids.shape[1] :].tolist()
                ends = [i for i, token in enumerate(text) if token in model.config.eos_token_id]
                text = text[: ends[0]] if ends else text
                text = bytes(text).decode(errors="replace")
                case = {"prompt": prompt, "beams": beams, "tokens": count, "ends": bool(ends), "text": text}
                cases.append(case)
    return cases


if __name__ == "__main__":
    task, folder, *rest = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    if task == "write":
        write(folder)
    elif task == "write-tokens":
        write_tokens(folder)
    elif task.removeprefix("write-") in RELATIVES:
        write_relative(folder, RELATIVES[task.removeprefix("write-")]())
    elif task == "train":
        print(json.dumps({decay: train(folder, decay) for decay in ["matrices", "all"]}))
    elif task == "compare":
        print(json.dumps(compare(folder, *rest)))
    elif task == "score":
        print(json.dumps(score(*rest)))
    elif task == "beams":
        print(json.dumps(beams(folder)))
