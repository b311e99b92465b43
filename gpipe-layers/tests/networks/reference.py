"""Losses, gradients, running statistics and logits of ResNets, a small U-Net and a small AmoebaNet-D in PyTorch, in
double precision, for main.rs.

    python reference.py [--torchvision] > expected.json

The ResNets are torchvision's, written out unless --torchvision takes its own; the others are those of torchgpipe's
benchmarks, without dropout, whose bits are another generator's. The images of the U-Net have an odd side on two levels,
so that the way up pads. Values are hashes of names and indices, which both sides make.

Each network learns from its images in one and in two micro-batches. Running statistics are those of the whole mini-batch,
which PyTorch averages in once for each micro-batch.
"""

import json
import re
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def noise(name, shape):
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 & 0xFFFFFFFF
    h = (np.arange(np.prod(shape), dtype=np.uint64) * 2654435761 + seed) & 0xFFFFFFFF
    h ^= h >> 16
    h = h * 0x45D9F3B & 0xFFFFFFFF
    h ^= h >> 16
    values = (h.astype(np.float64) / 2**31 - 1).astype(np.float32)
    return torch.from_numpy(values.reshape(shape)).double()


class Block(nn.Module):
    """Two convolutions, or three where `expansion` is 4."""

    def __init__(self, inputs, width, stride, expansion):
        super().__init__()
        outputs = width * expansion
        windows = [(width, 3, stride), (width, 3, 1)] if expansion == 1 else [(width, 1, 1), (width, 3, stride), (outputs, 1, 1)]
        channels = inputs
        for i, (out, size, step) in enumerate(windows, 1):
            setattr(self, f"conv{i}", nn.Conv2d(channels, out, size, step, size // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(out))
            channels = out
        self.count = len(windows)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = functional.relu(y) if i < self.count else y
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, expansion, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, count in enumerate(blocks):
            layer = []
            for j in range(count):
                layer.append(Block(inputs, 64 << i, 2 if i > 0 and j == 0 else 1, expansion))
                inputs = (64 << i) * expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def resnet(name, classes):
    if "--torchvision" in sys.argv:
        import torchvision

        return getattr(torchvision.models, name)(num_classes=classes)
    blocks, expansion = {"resnet18": ([2, 2, 2, 2], 1), "resnet50": ([3, 4, 6, 3], 4)}[name]
    return ResNet(blocks, expansion, classes)


class UNet(nn.Module):
    """Parameters are named `{level}_{unit}_conv.weight`."""

    def __init__(self, units, c, depth=5):
        super().__init__()
        self.units, self.depth = units, depth
        for i in range(depth):
            self.level(f"encoder_{i}_encode", 3 if i == 0 else c << (i - 1), c << i, c << i)
        self.level("bottleneck_0", c << (depth - 1), c << depth, c << (depth - 1))
        for i in range(depth):
            out = (c << (depth - 1 - i)) // 2
            self.level(f"decoder_{i}_decode", c << (depth - i), out, out)
        self.segment = nn.Conv2d(c // 2, 1, 1, bias=False)

    def level(self, name, inputs, inner, outputs):
        widths = [inputs] + [inner] * (self.units - 1) + [outputs]
        for i in range(self.units):
            self.add_module(f"{name}_{i}_conv", nn.Conv2d(widths[i], widths[i + 1], 3, padding=1, bias=False))

    def run(self, name, x):
        for i in range(self.units):
            x = functional.instance_norm(getattr(self, f"{name}_{i}_conv")(x))
            x = functional.leaky_relu(x, 0.01)
        return x

    def forward(self, x):
        skips = []
        for i in range(self.depth):
            x = self.run(f"encoder_{i}_encode", x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.run("bottleneck_0", x)
        for i in range(self.depth):
            skip = skips.pop()
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = functional.pad(x, (0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2]))
            x = self.run(f"decoder_{i}_decode", torch.cat((x, skip), 1))
        return self.segment(x)


def convolutions(*windows):
    """ReLU, convolution and normalization for each (inputs, outputs, kernel, stride, padding)."""
    layers = []
    for inputs, outputs, kernel, stride, padding in windows:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        layers += [nn.ReLU(), conv, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers)


class FactorizedReduce(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.conv2 = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = functional.relu(x)
        shifted = functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.bn(torch.cat((self.conv1(x), self.conv2(shifted)), 1))


class Operation(nn.Module):
    def __init__(self, kind, c, stride):
        super().__init__()
        q = c // 4
        self.module = {
            "id": lambda: nn.Identity(),
            "avg": lambda: nn.AvgPool2d(3, stride, 1, count_include_pad=False),
            "max": lambda: nn.MaxPool2d(2, stride),
            "conv1": lambda: convolutions((c, c, 1, stride, 0)),
            "conv3": lambda: convolutions((c, q, 1, 1, 0), (q, q, 3, stride, 1), (q, c, 1, 1, 0)),
            "conv7": lambda: convolutions(
                (c, q, 1, 1, 0), (q, q, (1, 7), (1, stride), (0, 3)), (q, q, (7, 1), (stride, 1), (3, 0)), (q, c, 1, 1, 0)
            ),
        }[kind]()

    def forward(self, x):
        return self.module(x)


NORMAL = ("1 conv1 1 avg, 1 id 0 conv7, 0 conv1 0 conv7, 2 avg 2 id, 1 avg 5 conv1", (0, 3, 4, 6))
REDUCTION = ("0 max 0 avg, 2 id 1 conv3, 2 conv7 2 avg, 3 id 1 max, 2 avg 3 conv1", (4, 5, 6))


class Cell(nn.Module):
    def __init__(self, older, newer, c, reduction, reduced):
        super().__init__()
        pairs, self.result = REDUCTION if reduction else NORMAL
        self.pairs = [[(int(s), kind) for s, kind in zip(p.split()[::2], p.split()[1::2])] for p in pairs.split(",")]
        self.reduce1 = convolutions((newer, c, 1, 1, 0))
        if reduced:
            self.reduce2 = FactorizedReduce(older, c)
        else:
            self.reduce2 = nn.Identity() if older == c else convolutions((older, c, 1, 1, 0))
        every = [operation for pair in self.pairs for operation in pair]
        stride = lambda state: 2 if reduction and state < 2 else 1
        self.operations = nn.ModuleList(Operation(kind, c, stride(state)) for state, kind in every)

    def forward(self, s, skip):
        states = [self.reduce1(s), self.reduce2(skip)]
        for i, ((a, _), (b, _)) in enumerate(self.pairs):
            states.append(self.operations[2 * i](states[a]) + self.operations[2 * i + 1](states[b]))
        return torch.cat([states[i] for i in self.result], 1), s


class Stem(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(3, c, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        return self.bn(self.conv(functional.relu(x)))


class AmoebaNetD(nn.Module):
    def __init__(self, normal, filters, classes):
        super().__init__()
        c = filters // 4
        self.stem1 = Stem(c)
        older, newer, reduced = c, c, False
        names = ["stem2", "stem3"]
        for number, last in ((1, "cell2_reduction"), (3, "cell4_reduction"), (5, None)):
            names += [f"cell{number}_normal{i + 1}" for i in range(normal // 3)] + [last]
        self.cells = names[:-1]
        for name in self.cells:
            reduction = "normal" not in name
            c *= 2 if reduction else 1
            self.add_module(name, Cell(older, newer, c, reduction, reduced))
            older, newer, reduced = newer, c * (3 if reduction else 4), reduction
        self.classify = nn.ModuleDict({"fc": nn.Linear(newer, classes)})

    def forward(self, x):
        s = skip = self.stem1(x)
        for name in self.cells:
            s, skip = getattr(self, name)(s, skip)
        return self.classify["fc"](s.mean((2, 3)))


def summary(value):
    return [value.norm().item(), (value * noise("probe", value.shape)).sum().item()]


def average(norm, inputs):
    """Takes the statistics of a mini-batch into the running ones."""
    rows = torch.cat(inputs).transpose(0, 1).flatten(1)
    norm.running_mean.mul_(1 - norm.momentum).add_(rows.mean(1), alpha=norm.momentum)
    norm.running_var.mul_(1 - norm.momentum).add_(rows.var(1), alpha=norm.momentum)


def run(model, size, batch, loss_of, micro_batches):
    model = model.double()
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = (2 / value[0].numel()) ** 0.5 if value.dim() == 4 else 0.1
            base = 1 if value.dim() == 1 and name.endswith("weight") else 0
            value.copy_((base + scale * noise(name, value.shape)).float().double())
    norms = {norm: [] for norm in model.modules() if isinstance(norm, nn.BatchNorm2d)}
    hooks = [norm.register_forward_pre_hook(lambda norm, x: norms[norm].append(x[0].detach())) for norm in norms]
    x = noise("x", (batch, size, size, 3)).permute(0, 3, 1, 2)
    loss = 0
    for part, samples in zip(x.chunk(micro_batches), torch.arange(batch).chunk(micro_batches)):
        # Each loss is a mean, of an equal share of the terms.
        part_loss = loss_of(model(part), samples, batch) / micro_batches
        part_loss.backward()
        loss += part_loss.item()
    for norm, inputs in norms.items():
        norm.reset_running_stats()
        average(norm, inputs)
    for hook in hooks:
        hook.remove()
    model.eval()
    with torch.no_grad():
        logits = model(x).permute(0, 2, 3, 1) if model(x).dim() == 4 else model(x)
    return {
        "loss": loss,
        "gradients": {name: summary(value.grad) for name, value in model.named_parameters()},
        "statistics": {name: summary(value) for name, value in model.named_buffers() if "running" in name},
        "logits": summary(logits) if logits.numel() > 100 else logits.flatten().tolist(),
    }


def of_masks(y, samples, batch):
    masks = (noise("masks", (batch, *y.shape[2:], 1)).permute(0, 3, 1, 2) > 0).double()
    return functional.binary_cross_entropy_with_logits(y, masks[samples])


def of_classes(y, samples, batch):
    return functional.cross_entropy(y, samples * 3 % y.shape[1])


CASES = {
    "resnet18": (lambda: resnet("resnet18", 10), 64, 4, of_classes),
    "resnet50": (lambda: resnet("resnet50", 10), 64, 4, of_classes),
    "unet:2,4": (lambda: UNet(2, 4), 76, 2, of_masks),
    "amoebanetd:3,16": (lambda: AmoebaNetD(3, 16, 10), 96, 4, of_classes),
}
found = {
    name: {str(m): run(make(), size, batch, loss_of, m) for m in (1, 2)}
    for name, (make, size, batch, loss_of) in CASES.items()
}
# A list a line.
print(re.sub(r"\[[^\[\]]*\]", lambda numbers: " ".join(numbers[0].split()), json.dumps(found, indent=1)))
