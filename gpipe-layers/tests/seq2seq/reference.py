"""Losses and gradients of an encoder-decoder in PyTorch, in double precision, for main.rs.

    python reference.py > expected.json
    python reference.py beams > ../../../gpipe-train/src/generate/seq2seq_beams.json
    python reference.py loss MODEL SOURCE TARGET    # of a folder that gpipe has saved, on two texts

Every pair is a row of its own with padding masked; main.rs packs them as well. Values are hashes of names and
indices, which both sides make.
"""

import json
import math
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

VOCAB, WIDTH, INNER, HEADS, BLOCKS = 11, 8, 12, 2, [2, 2]
if sys.argv[1:2] == ["loss"]:
    with open(f"{sys.argv[2]}/config.json") as file:
        config = json.load(file)
    sizes = ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"]
    VOCAB, WIDTH, INNER, HEADS = [config[key] for key in sizes]
    BLOCKS = [config["encoder_layers"], config["decoder_layers"]]
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


class Transparent(nn.Module):
    """An encoder whose output is a weighted mean of what its layers take and the last one gives."""

    def __init__(self, encoder):
        super().__init__()
        self.layers, self.norm = encoder.layers, encoder.norm
        self.transparent = nn.Module()
        self.transparent.weight = nn.Parameter(torch.zeros(len(self.layers) + 1))

    def forward(self, x, src_key_padding_mask, **_):
        w = torch.softmax(self.transparent.weight + 1 / len(self.transparent.weight), 0)
        total = w[-1] * 0
        for layer, weight in zip(self.layers, w):
            total = total + weight * x
            x = layer(x, src_key_padding_mask=src_key_padding_mask)
        return self.norm(total + w[-1] * x)


class Seq2Seq(nn.Module):
    def __init__(self, transparent=False):
        super().__init__()
        self.src_token_emb = nn.Embedding(VOCAB, WIDTH)
        self.tgt_token_emb = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.Transformer(
            WIDTH, HEADS, *BLOCKS, INNER, 0.0, layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        if transparent:
            self.body.encoder = Transparent(self.body.encoder)
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
if sys.argv[1:2] == ["loss"]:
    saved = load_file(f"{sys.argv[2]}/model.safetensors")
    body = ("encoder.", "decoder.")
    model.load_state_dict({"body." + name if name.startswith(body) else name: value for name, value in saved.items()})
    total, count, end = 0.0, 0, b"\n"
    with torch.no_grad(), open(sys.argv[3], "rb") as sources, open(sys.argv[4], "rb") as targets:
        for source, target in zip(sources.read().splitlines(), targets.read().splitlines()):
            x, y, label = [torch.tensor([list(line)]) for line in (source + end, end + target, target + end)]
            logits = model(x, torch.zeros_like(x).bool(), y, torch.zeros_like(y).bool())
            total += functional.cross_entropy(logits[0], label[0], reduction="sum").item()
            count += label.numel()
    print(total / count)
    sys.exit()



def begun(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(begin(name.removeprefix("body."), parameter.shape))
    return model


begun(model)



def beam_search(line, beams, tokens, end):
    """The likeliest text, by the mean of ln of its tokens' probabilities, with no cache."""
    going, ended = [([], 0.0)], []
    for length in range(1, tokens + 1):
        found = []
        for text, total in going:
            texts = torch.tensor([line[-1:] + text])
            none = torch.zeros(1, len(line)).bool(), torch.zeros_like(texts).bool()
            logits = model(torch.tensor([line]), none[0], texts, none[1])[0, -1]
            found += [(text + [i], total + x) for i, x in enumerate(logits.log_softmax(0).tolist())]
        found = sorted(found, key=lambda one: -one[1])[: 2 * beams]
        ended += [one for one in found[:beams] if one[0][-1] == end]
        ended = sorted(ended, key=lambda one: -one[1] / len(one[0]))[:beams]
        going = [one for one in found if one[0][-1] != end][:beams]
        if len(ended) == beams and ended[-1][1] / len(ended[-1][0]) >= going[0][1] / length:
            going = []
            break
    return max(ended + going, key=lambda one: one[1] / len(one[0]))


if sys.argv[1:] == ["beams"]:
    cases = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Texts of different tokens.
            if "softmax" in name:
                parameter *= -1.0
            elif parameter.dim() == 2 and "emb" not in name:
                parameter *= 3.0
        for case in range(4):
            line = ids(f"line {case}", 3 + case).tolist()
            for beams, tokens, end in [(1, 7, VOCAB), (3, 7, VOCAB), (4, 9, 3)]:
                text, total = beam_search(line, beams, tokens, end)
                cases.append({"line": line, "beams": beams, "tokens": tokens, "end": end, "text": text, "ln": total})
    print("[" + ",\n ".join(map(json.dumps, cases)) + "]")
    sys.exit()

sources = [ids(f"source {i}", source) for i, (source, _) in enumerate(PAIRS)]
targets = [ids(f"target {i}", target) for i, (_, target) in enumerate(PAIRS)]
labels = [ids(f"label {i}", target) for i, (_, target) in enumerate(PAIRS)]
source, target, label = padded(sources, 0), padded(targets, 0), padded(labels, IGNORE)
source_padding = padded([torch.zeros_like(x) for x in sources], 1).bool()
target_padding = label == IGNORE


def loss(smoothing=0.0):
    logits = model(source, source_padding, target, target_padding).flatten(0, 1)
    return functional.cross_entropy(logits, label.flatten(), label_smoothing=smoothing, ignore_index=IGNORE)


def trained():
    """Losses of some steps, and norms of the gradients of the first with products with known numbers."""
    losses, gradients = [], {}
    for step in range(STEPS):
        model.zero_grad()
        value = loss()
        value.backward()
        losses.append(value.item())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if step == 0:
                    name = name.removeprefix("body.")
                    dot = (parameter.grad * noise("dot " + name, parameter.shape)).sum()
                    gradients[name] = [parameter.grad.norm().item(), dot.item()]
                parameter -= RATE * parameter.grad
    return losses, gradients


# PyTorch shares its part among all classes, the label's too.
smoothed = loss(SMOOTHING * VOCAB / (VOCAB - 1)).item()
expected = dict(zip(["losses", "gradients"], trained()))
expected["smoothed"] = smoothed
model = begun(Seq2Seq(transparent=True).double())
expected["transparent"] = dict(zip(["losses", "gradients"], trained()))
print(json.dumps(expected, indent=1))
