"""transformers' Llama of the shape of SmolLM2-135M with random weights, in float32 or, to write, another dtype.

usage: decoder.py train BLOCKS                  forward, and forward with backward, of a text of 128 tokens
       decoder.py tune BLOCKS DTYPE full|lora   a step of AdamW (fused) on that text: of all weights, or of peft's
                                                adapters (r = 16) on all linear layers; weights are in DTYPE
       decoder.py write BLOCKS [DTYPE]          a prompt of 128 tokens is read, then 32 tokens are written, with a cache

Threads come from OMP_NUM_THREADS. Medians of processor time over the blocks, after one that does not count; tune prints
elapsed time and the peak of the resident memory of eager steps too, and compiles the model if that is faster.
"""
import statistics
import sys
import time

import timing
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS, NEW = 128, 32


def make():
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, rms_norm_eps=1e-5))


def train(blocks):
    model = make().train()
    ids = torch.randint(0, 49152, (1, TOKENS))
    forward, both = [], []
    for block in range(blocks + 1):
        begin = time.process_time()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        middle = time.process_time()
        loss.backward()
        end = time.process_time()
        model.zero_grad(set_to_none=True)
        if block > 0:
            forward.append(middle - begin)
            both.append(end - begin)
    print("forward_ms", 1e3 * statistics.median(forward))
    print("step_ms", 1e3 * statistics.median(both))


def tune(blocks, dtype, kind):
    model = make().to(getattr(torch, dtype))
    if kind == "lora":
        import peft  # pylint: disable=import-outside-toplevel
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    ids = torch.randint(0, 49152, (1, TOKENS))

    def step(net):
        net(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    timing.show_best(model, step, blocks)


class Clock:
    """A streamer that keeps the time of the first new token."""

    def __init__(self):
        self.calls, self.first = 0, None

    def put(self, _):
        self.calls += 1
        if self.calls == 2:
            self.first = time.process_time()

    def end(self):
        pass


def write(blocks, dtype="float32"):
    model = make().to(getattr(torch, dtype)).eval()
    prompt = torch.randint(0, 49152, (1, TOKENS))
    reading, writing = [], []
    for block in range(blocks + 1):
        clock, begin = Clock(), time.process_time()
        model.generate(prompt, max_new_tokens=NEW + 1, min_new_tokens=NEW + 1, do_sample=False, streamer=clock,
                       attention_mask=torch.ones_like(prompt), pad_token_id=0)
        end = time.process_time()
        if block > 0:
            reading.append(clock.first - begin)
            writing.append((end - clock.first) / NEW)
    print("prompt_ms", 1e3 * statistics.median(reading))
    print("token_ms", 1e3 * statistics.median(writing))


{"train": train, "tune": tune, "write": write}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
