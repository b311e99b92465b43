"""A Llama of the sizes of SmolLM2-135M in PyTorch, for `cargo xtask bench llama`.

    python llama.py --threads 1 --steps 4
    python llama.py --threads 1 --tokens 64,256

Random weights. With --steps, training steps by AdamW after two that warm up; with --tokens, texts of these lengths by
`generate` with its cache, after one that warms up. Prints one JSON line.
"""

import argparse
import json
import resource
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH, PROMPT, WARM_UP = 4, 256, 32, 2


def timed(work):
    begin = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(model.config.vocab_size, (BATCH, LENGTH))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return [timed(step) for _ in range(WARM_UP + steps)][WARM_UP:]


def sample(model, lengths):
    model.eval()
    prompt = torch.randint(256, (1, PROMPT))

    def text(length):
        with torch.no_grad():
            model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                min_new_tokens=length,
                max_new_tokens=length,
                do_sample=False,
                pad_token_id=0,
            )

    text(8)
    return [[seconds / length for seconds in timed(lambda: text(length))] for length in lengths]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--tokens", default="")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = None
    if flags.steps:
        times = train(model, flags.steps)
    else:
        times = sample(model, [int(length) for length in flags.tokens.split(",")])
    seconds, cpu_seconds = zip(*times)
    # Kilobytes on Linux.
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "resident_bytes": resident}))


if __name__ == "__main__":
    main()
