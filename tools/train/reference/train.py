#!/usr/bin/env python3
"""Trains the model of cox-train with PyTorch: the same text, samples, initial values, schedule, clipping and optimizer.

    train.py [--device cpu|cuda] [--type fp32|bf16] [--steps N] [--losses FILE] ...

Writes the loss of each step as `cox-train --losses` does: its number, the loss as a decimal, the loss exactly. One
process computes the batch of all devices together: `cox-train --devices host:2 --batch 8` is `train.py --batch 16`.

fp32: every operation in fp32 (no TF32), the attention as separate products. bf16: parameters, their gradients and
moments are fp32, and so is the arithmetic of the norms and of the loss; activations and their gradients are bf16: the
residual stream, the inputs and results of matrix products (the logits, too) and of the attention, and the GELU
(torch.autocast, and a residual stream of bf16).
"""

import argparse
import dataclasses
import math
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from data import Text
from model import Rules, Shape, Transformer, initial_values, load
from permutation import permuted


def learning_rate(options, step):
    """A linear warm-up, then a half cosine down to the last rate (src/engine/schedule.hpp)."""
    if step <= options.warm_up:
        return options.rate * step / options.warm_up
    share = 0.5 * (1 + math.cos(math.pi * (step - options.warm_up) / (options.steps - options.warm_up)))
    return options.last_rate + share * (options.rate - options.last_rate)


class AdamW:
    """AdamW as cox-train computes it (src/kernels/optimizer.cpp), written out to compare it line by line."""

    def __init__(self, parameters, rules):
        self.parameters = list(parameters)
        self.rules = rules
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def update(self, step, rate):
        rules = self.rules
        gradients = [p.grad for p in self.parameters]
        norm = torch.stack([(g * g).sum() for g in gradients]).sum().sqrt()
        factor = torch.clamp(rules.clip / norm, max=1.0)
        correct1 = 1 / (1 - rules.beta1**step) if rules.bias_correction else 1.0
        correct2 = 1 / (1 - rules.beta2**step) if rules.bias_correction else 1.0
        for p, g, m, v in zip(self.parameters, gradients, self.first, self.second):
            g = g * factor
            m.mul_(rules.beta1).add_(g, alpha=1 - rules.beta1)
            v.mul_(rules.beta2).addcmul_(g, g, value=1 - rules.beta2)
            p.mul_(1 - rate * (rules.decay if p.dim() == 2 else rules.decay_vectors))
            p.sub_(rate * (m * correct1) / ((v * correct2).sqrt() + rules.epsilon))


def train(options, rules):
    """Returns the loss of each step."""
    device = torch.device(options.device)
    text = Text(options.text, options.context)
    shape = Shape(options.vocabulary or text.vocabulary, options.context, options.layers, options.heads, options.width)
    values = initial_values(shape, options.seed)
    if options.permute is not None:
        values = permuted(values, shape, options.permute)
    model = Transformer(shape, dataclasses.replace(rules, residual=rules.residual or options.type))
    load(model, values)
    model.to(device)
    optimizer = AdamW(model.parameters(), rules)

    def arithmetic():
        return sdpa_kernel(SDPBackend.MATH) if options.type == "fp32" else torch.autocast(device.type, torch.bfloat16)

    losses = []
    for step in range(1, min(options.stop_after or options.steps, options.steps) + 1):
        for p in model.parameters():
            p.grad = None
        loss = torch.zeros((), device=device)
        share = options.batch // options.micro_batches
        for batch in range(options.micro_batches):
            tokens, targets = text.samples(options.seed, step, batch * share, share)
            with arithmetic():
                part = model(torch.from_numpy(tokens).to(device), torch.from_numpy(targets).to(device))
            part = part / options.micro_batches
            part.backward()
            loss += part.detach()
        optimizer.update(step, learning_rate(options, step))
        losses.append(loss.item())
    return losses


def exact(value):
    """As C's %a: without the zeros at the end."""
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def write_losses(file, losses):
    for step, loss in enumerate(losses, 1):
        print(f"{step} {loss:.6f} {exact(loss)}", file=file)


def parse_rule(text):
    name, _, value = text.partition("=")
    kinds = {field.name: field.type for field in dataclasses.fields(Rules)}
    if name not in kinds:
        raise argparse.ArgumentTypeError(f"{name} is none of: {', '.join(kinds)}")
    if kinds[name] is bool:
        return name, value == "true"
    return name, kinds[name](value)


def parser():
    result = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    result.add_argument("--device", default="cpu", help="cpu or cuda")
    result.add_argument("--type", choices=("fp32", "bf16"), default="fp32")
    result.add_argument("--steps", type=int, default=200)
    result.add_argument("--stop-after", type=int, default=0, help="end after this step; 0: after the last one")
    result.add_argument("--batch", type=int, default=16, help="samples of a step, on all devices together")
    result.add_argument("--micro-batches", type=int, default=1)
    result.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--vocabulary", type=int, default=0, help="at least the number of different characters")
    for name in ("context", "layers", "heads", "width"):
        result.add_argument(f"--{name}", type=int, default=getattr(Shape, name))
    result.add_argument("--rate", type=float, default=3e-3)
    result.add_argument("--last-rate", type=float, default=3e-4)
    result.add_argument("--warm-up", type=int, default=20)
    result.add_argument("--permute", type=int, help="another order of additions, of this number (permutation.py)")
    result.add_argument(
        "--rule",
        type=parse_rule,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="train by another rule (model.Rules), for tests of the comparison",
    )
    result.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as many as PyTorch selects")
    result.add_argument("--losses", help="file; default: the standard output")
    return result


def main():
    options = parser().parse_args()
    if options.batch % options.micro_batches:
        raise SystemExit("train.py: --batch must be a multiple of --micro-batches")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    losses = train(options, dataclasses.replace(Rules(), **dict(options.rule)))
    if options.losses is None:
        write_losses(sys.stdout, losses)
    else:
        with open(options.losses, "w", encoding="ascii") as file:
            write_losses(file, losses)


if __name__ == "__main__":
    main()
