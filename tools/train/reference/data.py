"""The text, the samples and the random numbers of cox-train (src/data), number by number."""

from pathlib import Path

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
BLOCK = 2**16  # numbers that are computed at once


def mixed(x):
    """64 bits that depend on all bits of `x`, as train::mixed. Takes an int, or an array of uint64."""
    if isinstance(x, int):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def normal(seed, name, count):
    """The first `count` numbers of train::Random(seed, name).normal(), as float32."""
    state = mixed((seed + GOLDEN) & MASK)
    for byte in name.encode():
        state = mixed(state ^ byte)
    result = np.empty(count, dtype=np.float32)
    for begin in range(0, count, BLOCK):
        # A call of next() adds a constant to the state, so all states are known at once.
        calls = np.arange(2 * begin + 1, 2 * min(begin + BLOCK, count) + 1, dtype=np.uint64)
        states = calls * np.uint64(GOLDEN) + np.uint64(state)
        uniform = ((mixed(states) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log(uniform[0::2]))
        result[begin : begin + BLOCK] = radius * np.cos(6.283185307179586 * uniform[1::2])
    return result


class Text:
    """A text as numbers, one for each different byte. The last tenth is held out, as in train::Text."""

    def __init__(self, file, context):
        characters = np.frombuffer(Path(file).read_bytes(), dtype=np.uint8)
        different, tokens = np.unique(characters, return_inverse=True)
        self.vocabulary = len(different)
        self.tokens = tokens.astype(np.int64)
        self.context = context
        self.held_out_begin = len(tokens) - len(tokens) // 10

    def samples(self, seed, step, first, count):
        """Inputs and targets, [count, context], of the samples from number `first` on of a step, counted from 1."""
        places = self.held_out_begin - self.context
        begins = [
            mixed((mixed((mixed(seed + 1) + step) & MASK) + i) & MASK) % places for i in range(first, first + count)
        ]
        windows = np.stack([self.tokens[begin : begin + self.context + 1] for begin in begins])
        return windows[:, :-1], windows[:, 1:]
