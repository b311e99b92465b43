"""Training steps of the models `bench-tiny`, `bench-a` and `bench-b` in PyTorch, for `cargo xtask bench ranks`.

    python ddp.py --model bench-a --processes 2 --steps 6

One process trains on the whole batch; several divide it by DistributedDataParallel over gloo on this host. One thread a
process. Prints one JSON line: the seconds of each step of the first process after two that warm up, and the losses.
"""

import argparse
import json
import tempfile
import time

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional

VOCABULARY, WARM_UP = 256, 2
# Length, width, blocks, heads, batch.
MODELS = {"bench-tiny": (32, 32, 8, 2, 32), "bench-a": (128, 256, 8, 4, 32), "bench-b": (256, 384, 12, 6, 16)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, length, width, blocks, heads):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        return self.head(self.norm(self.blocks(x)))


def train(rank, arguments, meeting):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    length, width, blocks, heads, batch = MODELS[arguments.model]
    processes = arguments.processes
    model = Model(length, width, blocks, heads)
    if processes > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    data = torch.randint(VOCABULARY, (batch, length + 1))
    own = data.chunk(processes)[rank]
    seconds, losses = [], []
    for step in range(WARM_UP + arguments.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        logits = model(own[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), own[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
    if processes > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bench-a", choices=MODELS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        if arguments.processes == 1:
            train(0, arguments, meeting)
        else:
            multiprocessing.spawn(train, (arguments, meeting), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
