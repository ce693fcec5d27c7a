#!/usr/bin/env python3
"""cox-train beside PyTorch DDP: GPT-2 124M's shape, bf16, 16 samples of 1,024 tokens on each GPU.

    perf_train.py PROGRAM [--gpus 1,2] [--rounds 3] [--json FILE]
    perf_train.py PROGRAM --dry      a tiny model on host devices and the CPU, to see that this script works

Every contender runs in every round, in a shuffled order. What fails or does not end in time is a row that says so.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from outcome import has_trained

FOLDER = pathlib.Path(__file__).resolve().parent
GPT2 = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50304, "batch": 16}
TINY = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 96, "batch": 4}

DEFINITIONS = """\
ms a step: median of all steps of all rounds; in brackets the lowest and the highest median of a round. cox-train: by
  the host's clock, each step to its loss. PyTorch: by the GPU's clock, without a wait in a step.
not hidden, alone: a step on N GPUs minus a step of the same program without exchange on N GPUs: N processes at the same
  time, one on each GPU. The same for all.
not hidden, own: what the program itself can tell. DDP: a step minus a step under no_sync() in the same process.
  cox-train: from the end of a rank's backward pass to the end of the exchange of its gradients, in the step.
scaling: a step on one GPU divided by a step on N, of the same program (1: no loss). On one GPU there is nothing to
  exchange: sharded is compared with cox-train, DDP with the hook is compared with DDP, also for "alone".
peak, reserved: GiB of the first GPU in use at the peak, and reserved for the program's allocator at the peak. Not
  counted: CUDA contexts, NCCL's buffers.
loss: of the last step, on all GPUs together; equal for equal numbers of GPUs but for rounding."""


@dataclass(frozen=True)
class Contender:
    name: str
    program: str  # cox-train, or ddp_step.py
    arguments: tuple = ()
    alone: str = ""  # the contender whose runs on one GPU are this one without exchange


CONTENDERS = (
    Contender("cox-train", "cox-train"),
    Contender("cox-train, sharded", "cox-train", ("--sharded",), alone="cox-train"),
    Contender("cox-train, captured", "cox-train", ("--captured",)),
    Contender("DDP eager", "ddp_step.py"),
    Contender("DDP eager, bf16 hook", "ddp_step.py", ("--hook", "bf16"), alone="DDP eager"),
    Contender("DDP compiled", "ddp_step.py", ("--compiled",)),
    Contender("DDP compiled, bf16 hook", "ddp_step.py", ("--compiled", "--hook", "bf16"), alone="DDP compiled"),
)


class Failure(Exception):
    """A run has no result."""


def as_words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def reason(log):
    """The line of a failed run that says most."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    lines = [line for line in lines if "--help" not in line] or [""]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])[:200]


def wait(processes, seconds):
    """Waits for all, and ends those that are still there afterwards."""
    end = time.monotonic() + seconds
    try:
        for process in processes:
            process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Failure(f"not done after {seconds:.0f} s") from None
    finally:
        for process in processes:
            end_group(process)


def end_group(process):
    """start() has given the process a group of its own. torch.distributed.run ends its workers at a SIGTERM."""
    for number, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                pass


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.started = 0

    def command(self, contender, devices, result):
        options = self.options
        both = {**options.shape, "type": options.type, "text": options.text, "json": result}
        if contender.program == "cox-train":
            both |= {"devices": f"{'host' if options.dry else 'cuda'}:{devices}"}
            both |= {"steps": options.warm_up + options.steps, "warm-up": 1, "rate": 3e-4, "last-rate": 3e-4}
            both |= {"bucket-kib": options.bucket_kib, "evaluate": 0, "log-every": 0, "restarts": 0}
            return [options.program, *as_words(both), *contender.arguments]
        launcher = [sys.executable]
        if devices > 1:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(devices)]
        both |= {"steps": options.steps, "warm-up": options.warm_up, "device": "cpu" if options.dry else "cuda"}
        return [*launcher, str(FOLDER / "ddp_step.py"), *as_words(both), *contender.arguments]

    def start(self, contender, devices, only_gpu=None):
        """Returns the process, its log and its result's file. `only_gpu`: the one that it may use."""
        self.started += 1
        result = self.folder / f"{self.started}.json"
        log = self.folder / f"{self.started}.log"
        environment = dict(os.environ)
        if only_gpu is not None and not self.options.dry:
            visible = environment.get("CUDA_VISIBLE_DEVICES", "")
            environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[only_gpu] if visible else str(only_gpu)
        with open(log, "wb") as out:
            process = subprocess.Popen(
                self.command(contender, devices, result),
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=environment,
            )
        return process, log, result

    def run(self, contender, devices, alone):
        """What a contender measures on that many devices; `alone`: one process for each device, without exchange."""
        if alone:
            runs = [self.start(contender, 1, only_gpu=gpu) for gpu in range(devices)]
        else:
            runs = [self.start(contender, devices)]
        wait([process for process, _, _ in runs], self.options.limit)
        for process, log, result in runs:
            good = process.returncode == 0
            if contender.program == "cox-train":  # whose loss may not fall in so few steps
                good = has_trained(process.returncode, log.read_text(errors="replace"))
            if not good or not result.exists():
                raise Failure(f"exit code {process.returncode}: {reason(log)}")
        measured = [self.read(contender, result) for _, _, result in runs]
        return {**measured[0], "steps_ms": [ms for one in measured for ms in one["steps_ms"]]}

    def read(self, contender, result):
        with open(result, encoding="utf-8") as file:
            data = json.load(file)
        if contender.program == "ddp_step.py":
            if "without_exchange_ms" in data:
                own = statistics.median(data["steps_ms"]) - statistics.median(data["without_exchange_ms"])
                data["own_not_hidden_ms"] = own
            return data
        steps = data["steps"][self.options.warm_up :]
        own = [step["communication_not_hidden_ms"] for step in steps]
        measured = {
            "steps_ms": [step["ms"] for step in steps],
            "loss": steps[-1]["loss"],
            "peak_bytes": data["memory"]["peak_in_use"],
            "reserved_bytes": data["memory"]["peak_reserved"],
        }
        if data["devices"] > 1 and None not in own:
            measured["own_not_hidden_ms"] = statistics.median(own)
        return measured


def key(contender, devices, alone):
    return f"{contender.name} / {devices}{' alone' if alone else ''}"


def planned(contenders, counts):
    """All runs of a round: contender, devices, alone."""
    for contender in contenders:
        for devices in counts:
            if devices == 1 and contender.alone:
                continue  # nothing to exchange: the same as the contender that it names
            yield contender, devices, False
            if devices > 1 and not contender.alone:
                yield contender, devices, True


def measure(bench, contenders, counts, options, machine):
    results = {}
    shuffle = random.Random(options.seed)
    end = time.monotonic() + options.budget
    for number in range(options.rounds):
        runs = list(planned(contenders, counts))
        shuffle.shuffle(runs)
        for contender, devices, alone in runs:
            name = key(contender, devices, alone)
            entry = results.setdefault(name, {"rounds": [], "failures": []})
            if time.monotonic() > end:
                entry["failures"].append("no time left")
                continue
            if len(entry["failures"]) > 1:
                continue  # it does not work here
            begin = time.monotonic()
            try:
                entry["rounds"].append(bench.run(contender, devices, alone))
                said = f"{statistics.median(entry['rounds'][-1]['steps_ms']):.2f} ms a step"
            except (Failure, OSError, KeyError, ValueError) as problem:
                entry["failures"].append(str(problem) if isinstance(problem, Failure) else repr(problem))
                said = f"FAILED: {entry['failures'][-1]}"
            print(f"round {number + 1}: {name}: {said} ({time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)
            write_json(options, machine, results)  # after each run, for a call that is cut off
    return results


def write_json(options, machine, results):
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(
                {"machine": machine, "type": options.type, "shape": options.shape, "results": results}, file, indent=1
            )


def median(results, name):
    rounds = results.get(name, {}).get("rounds", [])
    steps = [ms for one in rounds for ms in one["steps_ms"]]
    return statistics.median(steps) if steps else None


def row(results, contender, devices, options):
    """The cells of the table."""
    entry = results[key(contender, devices, False)]
    label = [contender.name, str(devices)]
    if not entry["rounds"]:
        return [*label, f"failed: {'; '.join(dict.fromkeys(entry['failures']))}"]

    def shown(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    step = median(results, key(contender, devices, False))
    by_round = [statistics.median(one["steps_ms"]) for one in entry["rounds"]]
    peer = next(c for c in CONTENDERS if c.name == (contender.alone or contender.name))
    one_gpu = median(results, key(peer, 1, False))
    alone = median(results, key(peer, devices, True))
    own = [one["own_not_hidden_ms"] for one in entry["rounds"] if "own_not_hidden_ms" in one]
    last = entry["rounds"][-1]
    tokens = devices * options.shape["batch"] * options.shape["context"]
    memory = [f"{last[name] / 2**30:.2f}" if name in last else "-" for name in ("peak_bytes", "reserved_bytes")]
    return [
        *label,
        f"{step:.2f} [{min(by_round):.2f}, {max(by_round):.2f}]",
        f"{tokens / step:.1f}",
        shown(step - alone if alone else None, 2),
        shown(statistics.median(own) if own else None, 2),
        shown(one_gpu / step if one_gpu and devices > 1 else None, 3),
        *memory,
        f"{last['loss']:.3f}",
    ]


def print_table(results, contenders, counts, options):
    head = [
        "contender",
        "GPUs",
        "ms a step",
        "1,000 tokens/s",
        "not hidden, alone",
        "own",
        "scaling",
        "peak",
        "reserved",
        "loss",
    ]
    rows = [
        row(results, contender, devices, options)
        for devices in counts
        for contender in contenders
        if key(contender, devices, False) in results
    ]
    widths = [
        max(len(cells[i]) for cells in [head, *rows] if len(cells) == len(head) or i < 2) for i in range(len(head))
    ]
    for cells in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |")
    print("\n" + DEFINITIONS)
    failures = {name: entry["failures"] for name, entry in results.items() if entry["failures"]}
    for name, messages in failures.items():
        print(f"failed: {name}: {'; '.join(dict.fromkeys(messages))}")
    return failures


def describe(options):
    if options.dry:
        return "host devices and the CPU (dry)"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, text=True, capture_output=True, timeout=60, check=True).stdout.splitlines()
        return f"{len(lines)} x {lines[0]}"
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown GPUs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="cox-train")
    parser.add_argument("--gpus", default="1,2", help="numbers of GPUs, such as 1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="measured steps of a run")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before those")
    parser.add_argument("--bucket-kib", type=int, default=25600, help="of cox-train's buckets; DDP's have 25 MiB, too")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one run")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no run is started")
    parser.add_argument(
        "--contenders", default="", help="only those whose name contains one of these, with commas between"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of runs")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--json", help="file for all results")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, without GPUs")
    options = parser.parse_args()
    options.shape = TINY if options.dry else GPT2
    options.type = "fp32" if options.dry else "bf16"
    counts = sorted({int(count) for count in options.gpus.split(",")})
    words = [word.strip() for word in options.contenders.split(",") if word.strip()]
    contenders = [c for c in CONTENDERS if not words or any(word in c.name for word in words)]
    if not contenders:
        parser.error("--contenders: none has such a name")
    if importlib.util.find_spec("torch") is None and any(c.program != "cox-train" for c in contenders):
        print("perf_train.py: PyTorch is not installed: its rows will say so", file=sys.stderr)
    machine = describe(options)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Bench(options, pathlib.Path(folder)), contenders, counts, options, machine)
    print(
        f"{machine}; {options.type}, {options.shape}; {options.rounds} rounds of {options.steps} steps, order by seed "
        f"{options.seed}\n"
    )
    failures = print_table(results, contenders, counts, options)
    write_json(options, machine, results)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
