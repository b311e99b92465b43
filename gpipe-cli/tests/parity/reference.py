"""PyTorch's side of `cargo xtask parity`: what a GPT-2 of transformers does with the same batches.

    python reference.py write DIR          a small GPT-2 of bytes (model/) and its text (text.txt)
    python reference.py train DIR          trains it; losses and gradient norms as JSON on stdout
    python reference.py compare DIR A B    the largest difference of the logits of two folders
    python reference.py score DIR FOLDER   log-probabilities that FOLDER gives to tokens on stdin

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
from transformers import GPT2Config, GPT2LMHeadModel

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
    choose = random.Random(20)
    text = ""
    while len(text) <= STEPS * BATCH * TIME:
        text += " ".join(choose.choice(WORDS) for _ in range(choose.randint(3, 9))).capitalize() + ".\n"
    (folder / "text.txt").write_text(text)


def load(folder):
    torch.set_num_threads(1)
    return GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32)


def tokens(folder):
    return torch.tensor(list((folder / "text.txt").read_bytes()))


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
    windows = tokens(folder)[: 8 * TIME].view(8, TIME)
    difference = (load(left)(windows).logits - load(right)(windows).logits).abs().max().item()
    stored = sorted(load_file(Path(right) / "model.safetensors"))
    return {"difference": difference, "tensors": len(stored), "head_stored": "lm_head.weight" in stored}


@torch.no_grad()
def score(model):
    model, scores = load(model), []
    for line in sys.stdin:
        known, chosen = json.loads(line)
        known = known[-model.config.n_positions :]
        logits = model(torch.tensor([known])).logits[0, -1]
        scores.append(logits.log_softmax(0)[chosen].item())
    return scores


if __name__ == "__main__":
    task, folder, *rest = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    if task == "write":
        write(folder)
    elif task == "train":
        print(json.dumps({decay: train(folder, decay) for decay in ["matrices", "all"]}))
    elif task == "compare":
        print(json.dumps(compare(folder, *rest)))
    elif task == "score":
        print(json.dumps(score(*rest)))
