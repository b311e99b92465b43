"""Losses and gradients of an encoder-decoder in PyTorch, in double precision, for main.rs.

    python reference.py > expected.json

Every pair is a row of its own with padding masked; main.rs packs them as well. Values are hashes of names and
indices, which both sides make.
"""

import json
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

VOCAB, WIDTH, INNER, HEADS, BLOCKS = 11, 8, 12, 2, 2
STEPS, RATE, SMOOTHING, IGNORE = 5, 0.2, 0.1, -100
# Lengths of source and target; their sums are those of two packed rows.
PAIRS = [(3, 2), (4, 5), (5, 3), (2, 4)]


def hashes(name, count):
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * 2654435761 + seed) & 0xFFFFFFFF
    h ^= h >> 16
    h = h * 0x45D9F3B & 0xFFFFFFFF
    h ^= h >> 16
    return h


def noise(name, shape):
    values = (hashes(name, np.prod(shape)).astype(np.float64) / 2**31 - 1).astype(np.float32)
    return torch.from_numpy(values.reshape(shape)).double()


def ids(name, count):
    return torch.from_numpy((hashes(name, count) % VOCAB).astype(np.int64))


def positions(time):
    rates = 1e4 ** (-torch.arange(WIDTH // 2).double() / (WIDTH // 2 - 1))
    angles = torch.arange(time).double()[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_token_emb = nn.Embedding(VOCAB, WIDTH)
        self.tgt_token_emb = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.Transformer(
            WIDTH, HEADS, BLOCKS, BLOCKS, INNER, 0.0, layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        self.softmax = nn.Linear(WIDTH, VOCAB)

    def embed(self, table, x):
        return table(x) * math.sqrt(WIDTH) + positions(x.shape[1])

    def forward(self, source, source_padding, target, target_padding):
        time = target.shape[1]
        later = torch.ones(time, time, dtype=torch.bool).triu(1)
        y = self.body(
            self.embed(self.src_token_emb, source),
            self.embed(self.tgt_token_emb, target),
            tgt_mask=later,
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return self.softmax(y)


def begin(name, shape):
    if len(shape) == 2:
        return noise(name, shape) * math.sqrt(3 / shape[1])
    return noise(name, shape) * 0.1 + (1.0 if "norm" in name and name.endswith("weight") else 0.0)


def padded(sequences, filling):
    length = max(len(x) for x in sequences)
    return torch.stack([functional.pad(x, (0, length - len(x)), value=filling) for x in sequences])


model = Seq2Seq().double()
names = {name: name.removeprefix("body.") for name, _ in model.named_parameters()}
with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.copy_(begin(names[name], parameter.shape))

sources = [ids(f"source {i}", source) for i, (source, _) in enumerate(PAIRS)]
targets = [ids(f"target {i}", target) for i, (_, target) in enumerate(PAIRS)]
labels = [ids(f"label {i}", target) for i, (_, target) in enumerate(PAIRS)]
source, target, label = padded(sources, 0), padded(targets, 0), padded(labels, IGNORE)
source_padding = padded([torch.zeros_like(x) for x in sources], 1).bool()
target_padding = label == IGNORE


def loss(smoothing=0.0):
    logits = model(source, source_padding, target, target_padding).flatten(0, 1)
    return functional.cross_entropy(logits, label.flatten(), label_smoothing=smoothing, ignore_index=IGNORE)


expected = {"losses": [], "gradients": {}}
# PyTorch shares its part among all classes, the label's too.
expected["smoothed"] = loss(SMOOTHING * VOCAB / (VOCAB - 1)).item()
for step in range(STEPS):
    model.zero_grad()
    value = loss()
    value.backward()
    expected["losses"].append(value.item())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if step == 0:
                dot = (parameter.grad * noise("dot " + names[name], parameter.shape)).sum()
                expected["gradients"][names[name]] = [parameter.grad.norm().item(), dot.item()]
            parameter -= RATE * parameter.grad
print(json.dumps(expected, indent=1))
