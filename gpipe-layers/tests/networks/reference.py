"""Losses, gradients and running statistics of a small U-Net and a small AmoebaNet-D in PyTorch, in double precision,
for main.rs.

    python reference.py > expected.json

The networks are those of torchgpipe's benchmarks, without dropout, whose bits are another generator's. The images of the
U-Net have an odd side on two levels, so that the way up pads. Values are hashes of names and indices, which both
sides make.
"""

import json

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


def run(model, size, batch, loss_of):
    model = model.double()
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = (2 / value[0].numel()) ** 0.5 if value.dim() == 4 else 0.1
            base = 1 if value.dim() == 1 and name.endswith("weight") else 0
            value.copy_((base + scale * noise(name, value.shape)).float().double())
    loss = loss_of(model(noise("x", (batch, size, size, 3)).permute(0, 3, 1, 2)))
    loss.backward()
    return {
        "loss": loss.item(),
        "gradients": {name: summary(value.grad) for name, value in model.named_parameters()},
        "statistics": {name: summary(value) for name, value in model.named_buffers() if "running" in name},
    }


def of_masks(y):
    masks = (noise("masks", y.shape) > 0).double()
    return functional.binary_cross_entropy_with_logits(y, masks)


def of_classes(y):
    return functional.cross_entropy(y, torch.arange(len(y)) * 3 % y.shape[1])


found = {
    "unet:2,4": run(UNet(2, 4), 76, 2, of_masks),
    "amoebanetd:3,16": run(AmoebaNetD(3, 16, 10), 96, 4, of_classes),
}
print(json.dumps(found, indent=1))
