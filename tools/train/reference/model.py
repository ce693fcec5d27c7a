"""The model of cox-train: a decoder-only transformer as GPT-2, with its initial values (src/model)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from data import normal


@dataclass
class Shape:
    vocabulary: int
    context: int = 64
    layers: int = 4
    heads: int = 4
    width: int = 128


@dataclass
class Rules:
    """What two programs must agree on besides the shape. compare.py changes these to see that it finds it."""

    gelu: str = "tanh"  # the approximation; "none" is exact
    norm_epsilon: float = 1e-5
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    bias_correction: bool = True
    decay: float = 0.1  # of matrices
    decay_vectors: float = 0.0
    clip: float = 1.0
    residual: str = ""  # type of the residual stream, fp32 or bf16; by default that of train.py's --type


class Layer(nn.Module):
    def __init__(self, shape, rules):
        super().__init__()
        width = shape.width
        self.heads, self.gelu = shape.heads, rules.gelu
        self.norm1 = nn.LayerNorm(width, eps=rules.norm_epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=rules.norm_epsilon)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.norm2(x)), approximate=self.gelu))


class Transformer(nn.Module):
    """Returns the mean cross entropy of the targets. The output layer uses the token embedding."""

    def __init__(self, shape, rules=Rules()):
        super().__init__()
        self.token_table = nn.Embedding(shape.vocabulary, shape.width)
        self.position_table = nn.Embedding(shape.context, shape.width)
        self.layers = nn.ModuleList(Layer(shape, rules) for _ in range(shape.layers))
        self.last_norm = nn.LayerNorm(shape.width, eps=rules.norm_epsilon)
        self.residual = torch.bfloat16 if rules.residual == "bf16" else torch.float32

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = (self.token_table(tokens) + self.position_table(positions)).to(self.residual)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.last_norm(x), self.token_table.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def module_name(name):
    """The parameter of Transformer that cox-train calls `name`, and whether it is stored transposed."""
    head, _, rest = name.partition(".")
    if head in ("token_table", "position_table"):
        return head + ".weight", False
    rest = {"gain": "weight"}.get(rest, rest)
    if head == "last_norm":
        return f"{head}.{rest}", False
    rest = rest.replace("attention.", "").replace("mlp.", "mlp_").replace("gain", "weight")
    return f"layers.{head.removeprefix('layer')}.{rest}", rest.endswith("weight") and "norm" not in rest


def parameter_shapes(shape):
    """Names as in cox-train's checkpoints, dimensions, and the standard deviation of the initial values, or a value."""
    width = shape.width
    deviation = 0.02
    residual = deviation / math.sqrt(2 * shape.layers)
    yield "token_table", (shape.vocabulary, width), deviation, None
    yield "position_table", (shape.context, width), deviation, None
    for i in range(shape.layers):
        for name, dimensions, spread, value in (
            ("norm1.gain", (width,), None, 1.0),
            ("norm1.bias", (width,), None, 0.0),
            ("attention.qkv.weight", (width, 3 * width), deviation, None),
            ("attention.qkv.bias", (3 * width,), None, 0.0),
            ("attention.out.weight", (width, width), residual, None),
            ("attention.out.bias", (width,), None, 0.0),
            ("norm2.gain", (width,), None, 1.0),
            ("norm2.bias", (width,), None, 0.0),
            ("mlp.in.weight", (width, 4 * width), deviation, None),
            ("mlp.in.bias", (4 * width,), None, 0.0),
            ("mlp.out.weight", (4 * width, width), residual, None),
            ("mlp.out.bias", (width,), None, 0.0),
        ):
            yield f"layer{i}.{name}", dimensions, spread, value
    yield "last_norm.gain", (width,), None, 1.0
    yield "last_norm.bias", (width,), None, 0.0


def initial_values(shape, seed):
    """The parameters before the first step by cox-train's names: matrices are [inputs, outputs]."""
    values = {}
    for name, dimensions, deviation, value in parameter_shapes(shape):
        if deviation is None:
            values[name] = torch.full(dimensions, value)
        else:
            numbers = torch.from_numpy(normal(seed, name, math.prod(dimensions)))
            values[name] = (numbers * torch.tensor(deviation)).view(dimensions)
    return values


def load(model, values):
    """Copies values with cox-train's names into a Transformer."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            target, transposed = module_name(name)
            parameters.pop(target).copy_(value.t() if transposed else value)
    assert not parameters, f"without a value: {list(parameters)}"
