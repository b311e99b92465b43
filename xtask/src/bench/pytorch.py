"""Training steps of the models `bench-tiny`, `bench-a` and `bench-b` in PyTorch, for `cargo xtask bench`.

    python pytorch.py single --model bench-a --threads 2 --steps 6
    python pytorch.py pipelined --stages 2 --schedule 1f1b --micro-batches 2,4 --checkpoint always
    python pytorch.py replicated --processes 2

`single` is one process without micro-batches. `pipelined` is `torch.distributed.pipelining`, one process a stage, and
`replicated` DistributedDataParallel, both over gloo on this host; `--threads` are those of each process. Prints one
JSON line, and where pipelined one for each number of micro-batches: of the steps after two that warm up the median of
the time and the least processor time of all processes together, in milliseconds; and the losses of the last process.
`--dtype bf16` is autocast: parameters stay f32, PyTorch chooses what is computed in bf16.
"""

import argparse
import json
import statistics
import tempfile
import time

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, WARM_UP = 256, 2
# Length, width, blocks, heads, batch.
MODELS = {"bench-tiny": (32, 32, 8, 2, 32), "bench-a": (128, 256, 8, 4, 32), "bench-b": (256, 384, 12, 6, 16)}
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Embedding(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(length, width))

    def forward(self, tokens):
        return self.tokens(tokens) + self.positions


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


class Head(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False))


class Checkpointed(nn.Module):
    """Keeps the input alone and computes the rest again in the backward pass."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def layers_of(name, stage=0, stages=1):
    """Those of one stage: blocks spread evenly, the embedding on the first stage and the head on the last."""
    torch.manual_seed(0)
    length, width, blocks, heads, _ = MODELS[name]
    layers = [Embedding(length, width), *(Block(width, heads) for _ in range(blocks)), Head(width)]
    share, rest = divmod(blocks, stages)
    cuts = [1 + share * number + min(rest, number) for number in range(1, stages)]
    bounds = [0, *cuts, len(layers)]
    return nn.Sequential(*layers[bounds[stage] : bounds[stage + 1]])


def data_of(name):
    """Inputs and targets."""
    torch.manual_seed(0)
    length, _, _, _, batch = MODELS[name]
    data = torch.randint(VOCABULARY, (batch, length + 1))
    return data[:, :-1], data[:, 1:]


def in_precision(function, arguments):
    """The function under autocast where bf16 is asked for."""

    def run(*inputs):
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16"):
            return function(*inputs)

    return run


def loss_of(logits, targets):
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def adamw(model, fused):
    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=fused)


def measure(step, arguments, **more):
    """Takes steps; the last process, which knows the losses of a pipeline, prints the JSON line."""
    seconds, processor_seconds, losses = [], [], []
    for number in range(WARM_UP + arguments.steps):
        start, processor_start = time.perf_counter(), time.process_time()
        losses.append(step())
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - start)
            processor_seconds.append(time.process_time() - processor_start)
    everywhere = [processor_seconds] * arguments.processes
    if arguments.processes > 1:
        distributed.all_gather_object(everywhere, processor_seconds)
    if arguments.processes == 1 or distributed.get_rank() == arguments.processes - 1:
        result = {
            "median_ms": 1e3 * statistics.median(seconds),
            "cpu_min_ms": 1e3 * min(map(sum, zip(*everywhere))),
            "losses": losses,
        }
        print(json.dumps({**more, **result}), flush=True)


def whole(rank, arguments):
    """Every process has the whole model and its share of the batch."""
    model, loss_function = layers_of(arguments.model), in_precision(loss_of, arguments)
    model.forward = in_precision(model.forward, arguments)
    if arguments.processes > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = adamw(model, fused=True if arguments.mode == "replicated" else None)
    inputs, targets = (data.chunk(arguments.processes)[rank] for data in data_of(arguments.model))

    def step():
        optimizer.zero_grad()
        loss = loss_function(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    measure(step, arguments)


def pipelined(rank, arguments):
    """Every process has one stage; each number of micro-batches begins with new parameters."""
    inputs, targets = data_of(arguments.model)
    is_last = rank == arguments.processes - 1
    given = {"target": targets} if is_last else {}
    for micro_batches in map(int, arguments.micro_batches.split(",")):
        model = layers_of(arguments.model, rank, arguments.processes)
        optimizer = adamw(model, fused=None)
        run = Checkpointed(model) if arguments.checkpoint == "always" else model
        run.forward = in_precision(run.forward, arguments)
        stage = PipelineStage(run, rank, arguments.processes, torch.device("cpu"))
        schedule = SCHEDULES[arguments.schedule](stage, micro_batches, loss_fn=in_precision(loss_of, arguments))

        def step():
            losses = []
            optimizer.zero_grad()
            schedule.step(*([inputs] if rank == 0 else []), **given, losses=losses)
            optimizer.step()
            distributed.barrier()
            return torch.stack(losses).mean().item() if is_last else None

        measure(step, arguments, microbatches=micro_batches)


def train(rank, arguments, meeting):
    torch.set_num_threads(arguments.threads)
    processes = arguments.processes
    if processes > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes)
    (pipelined if arguments.mode == "pipelined" else whole)(rank, arguments)
    if processes > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def main():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--model", default="bench-a", choices=MODELS)
    common.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    common.add_argument("--threads", type=int, default=1)
    common.add_argument("--steps", type=int, default=6)
    parser = argparse.ArgumentParser()
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("single", parents=[common]).set_defaults(processes=1)
    pipeline = modes.add_parser("pipelined", parents=[common])
    pipeline.add_argument("--stages", type=int, default=2, dest="processes")
    pipeline.add_argument("--schedule", default="gpipe", choices=SCHEDULES)
    pipeline.add_argument("--micro-batches", default="4")
    pipeline.add_argument("--checkpoint", default="never", choices=["never", "always"])
    modes.add_parser("replicated", parents=[common]).add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        if arguments.processes == 1:
            train(0, arguments, meeting)
        else:
            multiprocessing.spawn(train, (arguments, meeting), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
