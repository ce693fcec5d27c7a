"""Reads a checkpoint of cox-train (src/checkpoint/checkpoint.hpp)."""

import struct
from dataclasses import dataclass

import numpy as np


@dataclass
class Checkpoint:
    step: int
    losses: np.ndarray
    tensors: dict  # name: bytes


def read_checkpoint(file):
    """The checksum is not verified. Raises ValueError for another format."""
    with open(file, "rb") as stream:
        data = memoryview(stream.read())
    if bytes(data[:8]) != b"COXTRAIN":
        raise ValueError(f"{file} is no checkpoint")
    at = 8

    def number():
        nonlocal at
        (value,) = struct.unpack_from("=Q", data, at)
        at += 8
        return value

    def block():
        nonlocal at
        size = number()
        at += size
        return bytes(data[at - size : at])

    version = number()
    if version != 1:
        raise ValueError(f"{file} has version {version} of the format; this is 1")
    block()  # the fingerprint
    step = number()
    losses = np.frombuffer(block(), dtype=np.float32)
    tensors = {}
    for _ in range(number()):
        name = block().decode()
        tensors[name] = block()
    return Checkpoint(step, losses, tensors)
