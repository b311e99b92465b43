"""GPT-2 and matrix products in PyTorch on one GPU, in one process: a JSON object a line, each as soon as it is known.

The argument is a JSON object: blocks, width, heads, vocabulary, sequence, batch, steps, warm_up, micro_batches (of the
runs that have more than one) and products, a list of [m, n, k, layout]. What most people run: weights in f32, bf16 by
autocast, fused AdamW, scaled_dot_product_attention; eager and by torch.compile. Steps and products lie between two
events of the device, so that the host is not waited for. "device": "cpu" tries the script itself, with no time that
says anything.
"""

import gc
import json
import sys
import time


def say(**fields):
    print(json.dumps(fields), flush=True)


asked = json.loads(sys.argv[1])
device = asked.get("device", "cuda")
CALLS = 16  # products that the device is asked for at once
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except Exception as error:
    say(skipped=f"no torch: {error}")
    sys.exit(0)
if device == "cuda" and not torch.cuda.is_available():
    say(skipped=f"torch {torch.__version__} reaches no GPU")
    sys.exit(0)
on_gpu = device == "cuda"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, length, width = x.shape
        shape = (samples, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        width, vocabulary = asked["width"], asked["vocabulary"]
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(asked["sequence"], width)
        self.blocks = nn.ModuleList(Block(width, asked["heads"]) for _ in range(asked["blocks"]))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Clock:
    """Points in time of the device, or of the host where there is none."""

    def __init__(self):
        self.points = []

    def mark(self):
        if on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.points.append(event)
        else:
            self.points.append(time.perf_counter())

    def seconds(self):
        """Between each two points; waits for the last."""
        pairs = zip(self.points, self.points[1:])
        if not on_gpu:
            return [b - a for a, b in pairs]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in pairs]


def train(precision, micro_batches, compiled):
    """Trains on random tokens; the seconds of each measured step and the last loss."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model = GPT2().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=on_gpu)
    forward = torch.compile(model) if compiled else model
    shape = (4, asked["batch"], asked["sequence"] + 1)
    batches = torch.randint(0, asked["vocabulary"], shape, device=device)
    amp = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")
    clock, loss = Clock(), None
    for step in range(asked["warm_up"] + asked["steps"]):
        if step >= asked["warm_up"]:
            clock.mark()
        optimizer.zero_grad(set_to_none=True)
        for ids in batches[step % 4].chunk(micro_batches):
            with amp:
                loss = forward(ids[:, :-1], ids[:, 1:]) / micro_batches
            loss.backward()
        optimizer.step()
    clock.mark()
    return clock.seconds(), loss.item() * micro_batches


def run(precision, micro_batches, compiled):
    way = {"precision": precision, "micro_batches": micro_batches, "compiled": compiled}
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        seconds, loss = train(precision, micro_batches, compiled)
    except Exception as error:
        say(kind="failed", why=(str(error).strip().splitlines() or [type(error).__name__])[-1], **way)
        return
    held = torch.cuda.max_memory_allocated() if on_gpu else 0
    say(kind="run", seconds=seconds, loss=loss, peak_bytes=held, **way)


def product(precision, m, n, k, layout):
    """Seconds of one product: the factors lie as those of gpipe's products of this layout."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    made = {"device": device, "dtype": torch.bfloat16 if precision == "bf16" else torch.float32}
    a = torch.rand((k, m) if layout == "Tn" else (m, k), **made) - 0.5
    b = torch.rand((n, k) if layout == "Nt" else (k, n), **made) - 0.5
    a, b = a.t() if layout == "Tn" else a, b.t() if layout == "Nt" else b

    def calls():
        for _ in range(CALLS):
            torch.matmul(a, b)

    def measured(times):
        clock = Clock()
        clock.mark()
        for _ in range(times):
            several()
        clock.mark()
        return clock.seconds()[0]

    several = calls
    measured(3)
    if on_gpu:
        # By a graph: asking for a product may take longer than the product.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls()
        several = graph.replay
        measured(3)
    times = 1
    while (seconds := measured(times)) < 0.2 and times < 1 << 20:
        times *= 2
    return seconds / times / CALLS


def main():
    say(kind="found", torch=torch.__version__, device=torch.cuda.get_device_name() if on_gpu else "cpu")
    many = asked["micro_batches"]
    run("bf16", 1, False)
    run("bf16", many, False)
    with torch.no_grad():
        for m, n, k, layout in asked["products"]:
            seconds = product("bf16", m, n, k, layout)
            say(kind="product", precision="bf16", m=m, n=n, k=k, layout=layout, seconds=seconds)
    run("bf16", 1, True)
    run("tf32", 1, False)
    run("f32", 1, False)


main()
