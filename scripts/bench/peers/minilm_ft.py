"""Fine-tuning MiniLM on SST-2 in PyTorch with transformers' BertForSequenceClassification.

usage: minilm_ft.py DATA bench STEPS BLOCKS [SEED]    tokens per second on the first STEPS batches of 32 of each process
       minilm_ft.py DATA losses STEPS [SEED]          the first losses, without dropout
       minilm_ft.py DATA epoch [SEED] [STEPS]         one epoch, batches of 32 in all, and the accuracy on test.tsv

DATA: the folder with minilm and sst2. The seed draws the order of the rows and the classifier's first weights; the same
program of ours draws the same. Batches are padded to their longest row; tokens that count are those of the texts, with
their marks. AdamW (fused), lr 5e-5, no weight decay, a linear schedule with a tenth of warm-up. Threads come from
OMP_NUM_THREADS; with RANK, WORLD_SIZE and BENCH_STORE (a file to meet in) it is one rank of a job.
"""
import os
import sys
import time

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
DATA, MODE = sys.argv[1:3]
NUMBERS = [int(text) for text in sys.argv[3:]]
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
BATCH = 32


def read(name):
    """Sentences and labels."""
    with open(f"{DATA}/sst2/{name}.tsv", encoding="utf-8", newline="\n") as file:
        rows = [line.rsplit("\t", 1) for line in file.read().split("\n")[1:] if line]
    return [sentence for sentence, _ in rows], [int(label) for _, label in rows]


def make_batch(tokenizer, rows, order):
    """Rows of the set as a padded batch, and how many tokens it has."""
    sentences, labels = rows
    batch = tokenizer([sentences[i] for i in order], padding=True, truncation=True, return_tensors="pt")
    batch["labels"] = torch.tensor([labels[i] for i in order])
    return batch, batch["attention_mask"].sum().item()


def batches_of(tokenizer, rows, order, size):
    """This rank's part of every batch of `size` rows; the last one may be smaller."""
    for begin in range(0, len(order), size):
        some = order[begin:begin + size]
        share = (len(some) + WORLD - 1) // WORLD
        yield make_batch(tokenizer, rows, some[RANK * share:(RANK + 1) * share])


class Run:
    def __init__(self, seed, steps, dropout):
        """A model with the first weights of the seed, and what trains it for so many steps."""
        rates = {} if dropout else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.model = transformers.BertForSequenceClassification.from_pretrained(
            f"{DATA}/minilm", num_labels=2, attn_implementation="sdpa", **rates)
        torch.manual_seed(seed)
        with torch.no_grad():
            self.model.classifier.weight.copy_(torch.randn(2, 384) * 0.02)
            self.model.classifier.bias.zero_()
        self.model.train()
        torch.manual_seed(seed + RANK)
        self.wrapped = self.model
        if WORLD > 1:
            torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=RANK,
                                                 world_size=WORLD)
            self.wrapped = torch.nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True,
                                                                     static_graph=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
        self.schedule = transformers.get_linear_schedule_with_warmup(self.optimizer, steps // 10, steps)

    def step(self, batch):
        loss = self.wrapped(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def total(value):
    """The sum over the ranks."""
    if WORLD == 1:
        return value
    both = torch.tensor([float(value)])
    torch.distributed.all_reduce(both)
    return both.item()


def bench(tokenizer, rows, order, steps, blocks, seed):
    run = Run(seed, 10 * steps, dropout=True)
    batches = [batch for batch, _ in zip(batches_of(tokenizer, rows, order, BATCH * WORLD), range(steps))]
    times, processor = [], []
    for _ in range(blocks + 1):
        begin, used = time.perf_counter(), time.process_time()
        for batch, _ in batches:
            run.step(batch)
        times.append(time.perf_counter() - begin)
        processor.append(time.process_time() - used)
    middle = blocks // 2
    tokens = total(sum(count for _, count in batches))
    if RANK == 0:
        print("tokens_per_s", tokens / sorted(times[1:])[middle])
        print("step_cpu_ms", 1e3 * sorted(processor[1:])[middle] / steps)
        print("tokens", tokens)
        print("padded", sum(batch["input_ids"].numel() for batch, _ in batches))


def first_losses(tokenizer, rows, order, steps, seed):
    run = Run(seed, 10 * steps, dropout=False)
    for i, (batch, _) in zip(range(steps), batches_of(tokenizer, rows, order, BATCH)):
        print(f"loss_{i + 1} {total(run.step(batch).item()) / WORLD:.7f}")


def accuracy(run, tokenizer, rows):
    run.model.eval()
    right = 0
    with torch.no_grad():
        for batch, _ in batches_of(tokenizer, rows, range(len(rows[0])), BATCH):
            expected = batch.pop("labels")
            right += (run.model(**batch).logits.argmax(1) == expected).sum().item()
    return 100 * total(right) / len(rows[0])


def epoch(tokenizer, rows, order, seed, most):
    steps = min(most, (len(order) + BATCH - 1) // BATCH)
    run, tokens, begin = Run(seed, steps, dropout=True), 0, time.perf_counter()
    used = time.process_time()
    for i, (batch, count) in zip(range(steps), batches_of(tokenizer, rows, order, BATCH)):
        loss = run.step(batch)
        tokens += count
        if RANK == 0 and (i + 1) % 100 == 0:
            print(f"step {i + 1} loss {loss.item():.4f}", file=sys.stderr, flush=True)
    spent, used = time.perf_counter() - begin, time.process_time() - used
    tokens, right = total(tokens), accuracy(run, tokenizer, read("test"))
    if RANK == 0:
        print("accuracy", right)
        print("tokens_per_s", tokens / spent)
        print("processor_s", used)


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{DATA}/minilm")
    rows = read("train")
    counts = {"bench": 2, "losses": 1, "epoch": 0}[MODE]
    seed = NUMBERS[counts] if len(NUMBERS) > counts else 1
    torch.manual_seed(seed)
    order = torch.randperm(len(rows[0])).tolist()
    if MODE == "bench":
        bench(tokenizer, rows, order, NUMBERS[0], NUMBERS[1], seed)
    elif MODE == "losses":
        first_losses(tokenizer, rows, order, NUMBERS[0], seed)
    else:
        epoch(tokenizer, rows, order, seed, NUMBERS[1] if len(NUMBERS) > 1 else len(order))


main()
