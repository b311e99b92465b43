"""Losses, gradients and running statistics of a ResNet-18 in PyTorch, in double precision, for main.rs.

    python reference.py > expected.json

The network is torchvision's, written out so that only PyTorch is needed. Values are hashes of names and indices,
which both sides make.
"""

import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SIZE, BATCH, CLASSES = 64, 4, 10


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
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + skip)


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, outputs in enumerate([64, 128, 256, 512]):
            first = Block(inputs, outputs, 1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", nn.Sequential(first, Block(outputs, outputs, 1)))
            inputs = outputs
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def run(micro_batches):
    model = ResNet18().double()
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = (2 / value[0].numel()) ** 0.5 if value.dim() == 4 else 0.1
            base = 1 if value.dim() == 1 and name.endswith("weight") else 0
            value.copy_((base + scale * noise(name, value.shape)).float().double())
    x = noise("x", (BATCH, SIZE, SIZE, 3)).permute(0, 3, 1, 2)
    labels = torch.arange(BATCH) * 3 % CLASSES
    loss = 0
    for part, label in zip(x.chunk(micro_batches), labels.chunk(micro_batches)):
        part_loss = functional.cross_entropy(model(part), label, reduction="sum") / BATCH
        part_loss.backward()
        loss += part_loss.item()
    found = {"loss": loss, "gradients": {}, "statistics": {}}
    for name, value in model.named_parameters():
        grad = value.grad
        found["gradients"][name] = [grad.norm().item(), (grad * noise("probe", grad.shape)).sum().item()]
    if micro_batches == 1:
        for name, value in model.named_buffers():
            if "running" in name:
                found["statistics"][name] = [value.norm().item(), (value * noise("probe", value.shape)).sum().item()]
    return found


print(json.dumps({str(m): run(m) for m in (1, 2)}, indent=1))
