"""Losses and gradients of a small U-Net in PyTorch, in double precision, for main.rs.

    python reference.py > expected.json

The network is the simplified one of torchgpipe's benchmarks, without dropout, whose bits are another generator's. The
images have an odd side on two levels, so that the way up pads. Values are hashes of names and indices, which both
sides make.
"""

import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional

UNITS, CHANNELS, DEPTH, SIZE, BATCH = 2, 4, 5, 76, 2


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
    """One list of convolutions a level; parameters are named `{level}_{unit}_conv.weight`."""

    def __init__(self):
        super().__init__()
        c = CHANNELS
        for i in range(DEPTH):
            self.level(f"encoder_{i}_encode", 3 if i == 0 else c << (i - 1), c << i, c << i)
        self.level("bottleneck_0", c << (DEPTH - 1), c << DEPTH, c << (DEPTH - 1))
        for i in range(DEPTH):
            out = (c << (DEPTH - 1 - i)) // 2
            self.level(f"decoder_{i}_decode", c << (DEPTH - i), out, out)
        self.segment = nn.Conv2d(c // 2, 1, 1, bias=False)

    def level(self, name, inputs, inner, outputs):
        widths = [inputs] + [inner] * (UNITS - 1) + [outputs]
        for i in range(UNITS):
            self.add_module(f"{name}_{i}_conv", nn.Conv2d(widths[i], widths[i + 1], 3, padding=1, bias=False))

    def run(self, name, x):
        for i in range(UNITS):
            x = functional.instance_norm(getattr(self, f"{name}_{i}_conv")(x))
            x = functional.leaky_relu(x, 0.01)
        return x

    def forward(self, x):
        skips = []
        for i in range(DEPTH):
            x = self.run(f"encoder_{i}_encode", x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.run("bottleneck_0", x)
        for i in range(DEPTH):
            skip = skips.pop()
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = functional.pad(x, (0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2]))
            x = self.run(f"decoder_{i}_decode", torch.cat((x, skip), 1))
        return self.segment(x)


model = UNet().double()
with torch.no_grad():
    for name, value in model.named_parameters():
        scale = (2 / value[0].numel()) ** 0.5
        value.copy_((scale * noise(name, value.shape)).float().double())
x = noise("x", (BATCH, SIZE, SIZE, 3)).permute(0, 3, 1, 2)
masks = (noise("masks", (BATCH, SIZE, SIZE, 1)) > 0).double().permute(0, 3, 1, 2)
loss = functional.binary_cross_entropy_with_logits(model(x), masks)
loss.backward()
gradients = {
    name: [value.grad.norm().item(), (value.grad * noise("probe", value.shape)).sum().item()]
    for name, value in model.named_parameters()
}
print(json.dumps({"loss": loss.item(), "gradients": gradients}, indent=1))
