"""What the end of a run of cox-train says."""

import re


def has_trained(code, output):
    """Whether training succeeded, perhaps without a loss that fell: a matter of rates and steps, not of the program.

    cox-train has exit code 1 for that, but also for replicas that differ and for checkpoints that were not written.
    """
    if code != 1:
        return code == 0
    other = "DIFFER" in output or re.search(r"^checkpoints: \d+ written, [1-9]", output, re.MULTILINE)
    return "the loss did NOT fall" in output and not other
