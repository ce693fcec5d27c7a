#!/usr/bin/env python3
"""What PyTorch's in-place addition costs the calling thread: torch_launch.py ROUNDS BURSTS BURST.

Prints two numbers for each round: the median and the ninth tenth over BURSTS bursts of BURST calls, in nanoseconds of
one call. perf_launch --torch PYTHON runs it.
"""

import sys
import time

import torch


def burst(tensor, calls):
    """Nanoseconds of one call; the device is at rest before and after."""
    add = tensor.add_
    start = time.perf_counter_ns()
    for _ in range(calls):
        add(1)
    taken = (time.perf_counter_ns() - start) / calls
    torch.cuda.synchronize()
    return taken


def main():
    rounds, bursts, calls = (int(word) for word in sys.argv[1:4])
    tensor = torch.zeros(1024, device="cuda")
    burst(tensor, calls)
    for _ in range(rounds):
        taken = sorted(burst(tensor, calls) for _ in range(bursts))
        print(taken[round(0.5 * (bursts - 1))], taken[round(0.9 * (bursts - 1))])


if __name__ == "__main__":
    main()
