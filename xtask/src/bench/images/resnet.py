"""Training steps of a ResNet-50 in PyTorch, for `cargo xtask bench images`.

    python resnet.py --size 64 --threads 1 --steps 6

Plain SGD. Prints one JSON line: wall and processor seconds of each step after two that warm up. The network is
torchvision's, written out so that only PyTorch is needed.
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional

BATCH, CLASSES, WARM_UP = 8, 1000, 2
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + skip)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for group, count in enumerate([3, 4, 6, 3]):
            width = 64 << group
            for i in range(count):
                blocks.append(Block(inputs, width, 2 if group > 0 and i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--format", choices=FORMATS, default="contiguous")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    memory_format = FORMATS[flags.format]
    model = ResNet50().to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(BATCH, 3, flags.size, flags.size).contiguous(memory_format=memory_format)
    labels = torch.randint(CLASSES, (BATCH,))
    wall, cpu = [], []
    for _ in range(WARM_UP + flags.steps):
        begin = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        wall.append(time.perf_counter() - begin[0])
        cpu.append(time.process_time() - begin[1])
    print(json.dumps({"seconds": wall[WARM_UP:], "cpu_seconds": cpu[WARM_UP:]}))


if __name__ == "__main__":
    main()
