#!/usr/bin/env python3
"""Which ends of cox-train count as a run with a result. usage: outcome_test.py COX-TRAIN"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
from outcome import has_trained

MODEL = "--devices host:2 --steps 12 --layers 1 --heads 2 --width 16 --context 8 --batch 2 --warm-up 2 --evaluate 0".split()
RISES = ["--rate", "-0.03", "--last-rate", "-0.03"]


def trained(code, *arguments):
    """What has_trained() says of a run with these arguments, which must end with this exit code."""
    command = [sys.argv[1], *MODEL, "--log-every", "0", *arguments]
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert result.returncode == code, f"{command}: exit code {result.returncode} instead of {code}\n{result.stdout}"
    return has_trained(result.returncode, result.stdout)


with tempfile.TemporaryDirectory() as folder:
    assert trained(0)
    assert trained(1, *RISES)
    assert trained(1, *RISES, "--checkpoint", folder, "--every", "5")
    assert not trained(1, "--fault", "diverge@10")
    assert not trained(1, *RISES, "--fault", "diverge@10")
    assert not trained(1, "--checkpoint", "/dev/null/saved", "--every", "5")
    assert not trained(1, *RISES, "--checkpoint", "/dev/null/saved", "--every", "5")
    assert not trained(2, "--no-such-option")
    assert not trained(3, "--fault", "thread@3", "--restarts", "0")
    assert not has_trained(1, "Traceback (most recent call last):")
print("ok")
