#!/usr/bin/env python3
"""One contender of perf_train.py: the model of cox-train trained by PyTorch, replicated by DistributedDataParallel.

Started by `python3 -m torch.distributed.run` with a process for each device; alone, it trains on one device without
DDP. Rank 0 writes a file with the time of each step. PyTorch at its best: fused AdamW, a gradient that is a view of its
bucket, batches that are on the device already, and no wait for the device in a step. The samples, initial values and
rates are cox-train's, so that the losses can be compared.
"""

import argparse
import json
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from data import Text
from model import Rules, Shape, Transformer, initial_values, load


class Clock:
    """Times of steps: by events of the GPU, so that no step waits for the device; by the host's clock on the CPU."""

    def __init__(self, device):
        self.device = device
        self.marks = []

    def mark(self):
        if self.device.type == "cuda":
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def milliseconds(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [1e3 * (b - a) for a, b in zip(self.marks, self.marks[1:])]


class Trainer:
    def __init__(self, options, device, world):
        text = Text(options.text, options.context)
        vocabulary = max(options.vocabulary, text.vocabulary)
        shape = Shape(vocabulary, options.context, options.layers, options.heads, options.width)
        first = int(os.environ.get("RANK", 0)) * options.batch
        self.batches = []
        for number in range(1, options.warm_up + options.steps + 1):
            samples = text.samples(1, number, first, options.batch)
            self.batches.append([torch.from_numpy(part).to(device) for part in samples])
        self.device, self.options = device, options
        self.model = Transformer(shape, Rules(residual=options.type))
        load(self.model, initial_values(shape, 1))
        self.model.to(device)
        module = torch.compile(self.model) if options.compiled else self.model
        self.replica = None
        if world > 1:
            devices = [device.index] if device.type == "cuda" else None
            self.replica = DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)
            if options.hook == "bf16":
                self.replica.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)
        self.module = self.replica or module
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def step(self, number, exchange):
        casts = torch.autocast(self.device.type, torch.bfloat16) if self.options.type == "bf16" else nullcontext()
        with nullcontext() if exchange or self.replica is None else self.replica.no_sync():
            with casts:
                loss = self.module(*self.batches[number])
            loss.backward()
        loss = loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def timed(self, exchange):
        """Milliseconds of each step after the first ones, and the mean of the last losses of all ranks."""
        clock = Clock(self.device)
        for number in range(len(self.batches)):
            if number >= self.options.warm_up:
                clock.mark()
            loss = self.step(number, exchange)
        clock.mark()
        times = clock.milliseconds()
        if self.replica is not None:
            dist.all_reduce(loss)
            loss = loss / dist.get_world_size()
        return times, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--type", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--text", required=True)
    for name in ("vocabulary", "context", "layers", "heads", "width", "batch", "steps", "warm-up"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--hook", choices=("none", "bf16"), default="none")
    options = parser.parse_args()

    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    if world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    trainer = Trainer(options, device, world)
    steps, loss = trainer.timed(exchange=True)
    result = {"steps_ms": steps, "loss": loss, "torch": torch.__version__}
    if device.type == "cuda":
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
        result["reserved_bytes"] = torch.cuda.max_memory_reserved()
        result["device"] = torch.cuda.get_device_name()
    if world > 1:
        result["without_exchange_ms"], _ = trainer.timed(exchange=False)
    if int(os.environ.get("RANK", 0)) == 0:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
