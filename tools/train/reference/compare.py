#!/usr/bin/env python3
"""Compares the losses of cox-train with those of train.py, step by step.

    compare.py PROGRAM [--devices host:2] [--type fp32|bf16] [--device cpu|cuda] [OPTION...]   one comparison
    compare.py PROGRAM --self-test [OPTION...]     sees that mistakes are found, and that equal programs pass

PROGRAM is cox-train; options of train.py for model, step and optimizer are given to both.

Tolerance: two correct programs differ by the order of their additions, and training lets such differences grow.
train.py is run with several other orders (permutation.py), for bf16 also with a residual stream of fp32. The tolerance
of a step is FACTOR times the largest difference between any two of these runs so far, and at least FLOOR. Where a
tolerance gets larger than CAP, the comparison would find too little and is refused.

Exit code: 0 the losses agree, 1 they differ, 2 wrong arguments or no comparison is possible, 77 there is no PyTorch.
"""

import dataclasses
import itertools
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch")
    sys.exit(77)

import numpy as np

import train
from checkpoint import read_checkpoint
from model import Rules, Shape, initial_values
from outcome import has_trained

FACTOR = 4.0
FLOOR = 4 * 2.0**-21  # four times the distance of neighbouring numbers in fp32 between 4 and 8
CAP = {"fp32": 1e-3, "bf16": 0.25}
PERMUTATIONS = 4

# Given to both programs under the same name.
SHARED = (
    "steps",
    "stop_after",
    "micro_batches",
    "text",
    "seed",
    "context",
    "layers",
    "heads",
    "width",
    "rate",
    "last_rate",
    "warm_up",
)


class NoComparison(Exception):
    """The programs could not be compared."""


def read_losses(file):
    with open(file, encoding="ascii") as lines:
        return np.array([float.fromhex(line.split()[2]) for line in lines])


def device_count(devices):
    _, _, count = devices.partition(":")
    return int(count)


def run_program(options, *more):
    """The losses of cox-train."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "losses"
        command = [options.program, "--devices", options.devices, "--losses", str(file), "--log-every", "0"]
        for name in SHARED:
            command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
        command += ["--batch", str(options.batch // options.micro_batches // device_count(options.devices))]
        if options.type != "fp32":
            command += ["--type", options.type]
        if options.vocabulary:
            command += ["--vocabulary", str(options.vocabulary)]
        command += [*options.more, *more]
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        if not has_trained(result.returncode, result.stdout) or not file.exists():
            raise NoComparison(f"{' '.join(command)} ended with exit code {result.returncode}:\n{result.stdout}")
        return read_losses(file)


def run_reference(options, permute=None, **rules):
    changed = train.argparse.Namespace(**{**vars(options), "permute": permute})
    return np.array(train.train(changed, dataclasses.replace(Rules(), **rules)))


def reference_runs(options, permutations=PERMUTATIONS):
    """Runs that differ by rounding alone; the first one is the reference itself."""
    runs = [run_reference(options)]
    runs += [run_reference(options, permute=number) for number in range(1, permutations + 1)]
    if options.type == "bf16":
        runs.append(run_reference(options, residual="fp32"))
    return runs


def tolerance(runs, kind):
    """By step."""
    spread = np.max([np.abs(a - b) for a, b in itertools.combinations(runs, 2)], axis=0)
    result = np.maximum(FACTOR * np.maximum.accumulate(spread), FLOOR)
    if not result[-1] <= CAP[kind]:
        raise NoComparison(
            f"runs that differ by rounding alone differ by {result[-1] / FACTOR:.1e}, more than {CAP[kind] / FACTOR:.1e}: "
            "train fewer steps, or with a smaller --rate"
        )
    return result


class Comparison:
    """Of a program's losses with the reference."""

    def __init__(self, losses, reference, allowed):
        if len(losses) != len(reference):
            raise NoComparison(f"{len(losses)} losses instead of {len(reference)}")
        self.difference = np.abs(losses - reference)
        self.ratio = np.where(np.isfinite(self.difference), self.difference / allowed, np.inf)
        self.allowed = allowed
        self.agrees = bool((self.ratio <= 1).all())

    def __str__(self):
        largest, worst = int(np.argmax(self.difference)), int(np.argmax(self.ratio))
        text = f"largest difference {self.difference[largest]:.1e} "
        text += f"(step {largest + 1}, tolerance {self.allowed[largest]:.1e})"
        text += f", {self.ratio[worst]:.2f} of the tolerance at most (step {worst + 1})"
        if not self.agrees:
            first = int(np.argmax(self.ratio > 1))
            text += f", outside from step {first + 1} on"
        return text


def compare(options):
    losses = run_program(options)
    runs = reference_runs(options)
    allowed = tolerance(runs, options.type)
    for step in sorted({1, *range(10, len(losses), 10), len(losses)}):
        i = step - 1
        print(
            f"step {step:5}  cox-train {losses[i]:.6f}  PyTorch {runs[0][i]:.6f}  difference "
            f"{losses[i] - runs[0][i]:+.1e}  tolerance {allowed[i]:.1e}"
        )
    comparison = Comparison(losses, runs[0], allowed)
    print(f"{options.type}, {options.devices} beside PyTorch {torch.__version__} on {options.device}: {comparison}")
    print("the losses agree" if comparison.agrees else "the losses DIFFER")
    return 0 if comparison.agrees else 1


def check_initial_values(options):
    """Those of the port are those that cox-train uploads: with a learning rate of 0, step 1 leaves them as they are."""
    with tempfile.TemporaryDirectory() as folder:
        unmoved = train.argparse.Namespace(**{**vars(options), "rate": 0, "last_rate": 0})
        run_program(unmoved, "--checkpoint", folder, "--every", "1", "--stop-after", "1")
        (file,) = pathlib.Path(folder).glob("*.checkpoint")
        tensors = read_checkpoint(file).tensors
    text = train.Text(options.text, options.context)
    vocabulary = options.vocabulary or text.vocabulary
    shape = Shape(vocabulary, options.context, options.layers, options.heads, options.width)
    different = []
    for name, value in initial_values(shape, options.seed).items():
        theirs = np.frombuffer(tensors[name], dtype=np.float32)
        # The last bit depends on the cosine of the C library.
        if not np.allclose(theirs, value.numpy().ravel(), rtol=2.0**-22, atol=0):
            different.append(name)
    return different


# Each must be found, for fp32.
MISTAKES = (
    {"gelu": "none"},
    {"epsilon": 1e-7},
    {"bias_correction": False},
    {"norm_epsilon": 1e-6},
    {"beta1": 0.91},
    {"beta2": 0.951},
    {"decay": 0.11},
    {"decay_vectors": 0.1},
    {"clip": 1.01},
)
# With the roundings of bf16, only what changes the result by more than those.
MISTAKES_BF16 = ({"bias_correction": False}, {"clip": 1e9}, {"beta1": 0.91}, {"beta2": 0.999})


def self_test(options):
    failures = 0

    def expect(good, text):
        nonlocal failures
        failures += not good
        print(f"{'ok    ' if good else 'FAILED'} {text}", flush=True)

    different = check_initial_values(options)
    expect(not different, f"the initial values are equal {different or ''}")
    runs = reference_runs(options)
    allowed = tolerance(runs, options.type)
    losses = run_program(options)
    comparison = Comparison(losses, runs[0], allowed)
    expect(comparison.agrees, f"cox-train agrees: {comparison}")
    for number in (101, 102):
        comparison = Comparison(run_reference(options, permute=number), runs[0], allowed)
        expect(comparison.agrees, f"another order of additions agrees: {comparison}")
    for mistake in MISTAKES if options.type == "fp32" else MISTAKES_BF16:
        comparison = Comparison(losses, run_reference(options, **mistake), allowed)
        expect(not comparison.agrees, f"another rule is found, {mistake}: {comparison}")
    return 1 if failures else 0


def main():
    parser = train.parser()
    parser.description = __doc__.splitlines()[0]
    parser.set_defaults(steps=100)
    parser.add_argument("program", help="cox-train")
    parser.add_argument("--devices", default="host:2", help="of cox-train: host:COUNT or cuda:COUNT")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument(
        "--more",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="another argument for cox-train, such as --more=--sharded",
    )
    options = parser.parse_args()
    if options.batch % (options.micro_batches * device_count(options.devices)):
        parser.error("--batch must be a multiple of the number of devices and of --micro-batches")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    try:
        return self_test(options) if options.self_test else compare(options)
    except (NoComparison, subprocess.TimeoutExpired) as problem:
        print(f"compare.py: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
