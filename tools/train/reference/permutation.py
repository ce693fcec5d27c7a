"""Another order of additions. The width, the heads, what is inside a head and the MLP's units of a transformer can be
numbered in any order: the function is the same, but each sum over them is computed in another order. Training from
permuted initial values therefore shows how far rounding alone takes two correct programs apart."""

import torch


def permuted(values, shape, seed):
    """`values` (cox-train's names, see model.initial_values) of an equal model whose sums have another order."""
    generator = torch.Generator().manual_seed(seed)

    def order(count):
        return torch.randperm(count, generator=generator)

    depth = shape.width // shape.heads
    width = order(shape.width)
    result = {}
    for name in ("token_table", "position_table"):
        result[name] = values[name][:, width]
    for i in range(shape.layers):
        heads = order(shape.heads)
        inside_qk, inside_v = order(depth), order(depth)
        qk = (heads[:, None] * depth + inside_qk).flatten()
        v = (heads[:, None] * depth + inside_v).flatten()
        qkv = torch.cat((qk, shape.width + qk, 2 * shape.width + v))
        units = order(4 * shape.width)
        layer = f"layer{i}."
        for norm in ("norm1", "norm2"):
            for part in ("gain", "bias"):
                result[f"{layer}{norm}.{part}"] = values[f"{layer}{norm}.{part}"][width]
        for name, rows, columns in (
            ("attention.qkv", width, qkv),
            ("attention.out", v, width),
            ("mlp.in", width, units),
            ("mlp.out", units, width),
        ):
            result[f"{layer}{name}.weight"] = values[f"{layer}{name}.weight"][rows][:, columns]
            result[f"{layer}{name}.bias"] = values[f"{layer}{name}.bias"][columns]
    for part in ("gain", "bias"):
        result[f"last_norm.{part}"] = values[f"last_norm.{part}"][width]
    return result
