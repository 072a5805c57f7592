"""Steps that networks take for every row of a batch, each with its gradient in as few passes as it takes.

Networks of this size are bound by memory: what torch records of ``relu(layer(rows) + shared)`` and of a
maximum over rows reads and writes the rows several times more than needed. What is computed is what the
plain expressions below say; they are used while a network is exported.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

HIDING = 1e30
"""Subtracted where something is absent: rectified it is 0, as a score of attention its weight is 0."""


def rectified_rows(
    rows: Tensor, layer: nn.Linear, *, shared: Tensor | None = None, present: Tensor | None = None
) -> Tensor:
    """ReLU of a linear layer of rows [B, R, I].

    Args:
        rows: What goes in.
        layer: Has a bias.
        shared: [B, W], added to every row of a state before the ReLU.
        present: [B, R], 0 where the result shall be 0, else 1; not both of these.
    """
    if torch.onnx.is_in_onnx_export():
        result = layer(rows)
        result = result if shared is None else result + shared[:, None]
        return torch.relu(result if present is None else result * present[:, :, None])
    return _call(_RectifiedRows, rows, layer.weight, layer.bias, shared, present)[0]


def mean_and_largest(rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and maximum over rows [B, R, W] of numbers that are not negative; each [B, W].

    Args:
        rows: Zero where absent.
        shares: [B, R], weights of the mean.
    """
    if torch.onnx.is_in_onnx_export():
        return torch.bmm(shares[:, None], rows).squeeze(1), rows.amax(1)
    mean, largest = _call(_MeanAndLargest, rows, shares)
    return mean, largest


def rows_and_one_more(rows: Tensor, layer: nn.Linear, last: Tensor) -> Tensor:
    """A linear layer of rows [B, R, I], followed by the row ``last`` [B, W]: [B, R + 1, W]."""
    if torch.onnx.is_in_onnx_export():
        return torch.cat([layer(rows), last[:, None]], 1)
    return _call(_RowsAndOneMore, rows, layer.weight, layer.bias, last)[0]


def _call(function: Any, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    outputs = function.apply(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


class _RectifiedRows(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, shared: Tensor | None, present: Tensor | None
    ) -> Tensor:
        batch, count, inputs = rows.shape
        flat, width = rows.reshape(-1, inputs), len(weight)
        if shared is None and present is None:
            out = torch.addmm(bias, flat, weight.t())
        else:
            start = bias if shared is None else bias + shared
            start = start.expand(batch, width)[:, None]
            if present is not None:
                start = start + (present - 1)[:, :, None] * HIDING
            out = start.expand(batch, count, width).reshape(-1, width).contiguous().addmm_(flat, weight.t())
        out = out.relu_().view(batch, count, width)
        ctx.save_for_backward(rows, weight, out)
        ctx.has_shared = shared is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, out = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        flat = gradient.view(-1, len(weight))
        to_shared = gradient.sum(1) if ctx.has_shared else None
        return (
            (flat @ weight).view(rows.shape) if ctx.needs_input_grad[0] else None,
            flat.t() @ rows.reshape(-1, weight.shape[1]),
            (flat if to_shared is None else to_shared).sum(0),
            to_shared,
            None,
        )


class _MeanAndLargest(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        largest = rows.amax(1)
        ctx.save_for_backward(rows, shares, largest)
        return torch.bmm(shares[:, None], rows).squeeze(1), largest

    @staticmethod
    def backward(ctx: Any, to_mean: Tensor, to_largest: Tensor) -> tuple[Tensor, None]:
        rows, shares, largest = ctx.saved_tensors
        ties = (rows - largest[:, None]).sign_().add_(1)  # 1 at rows as large as the largest, else 0
        ties.mul_((to_largest / ties.sum(1))[:, None])
        return ties.add_(shares[:, :, None] * to_mean[:, None]), None


class _RowsAndOneMore(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, last: Tensor) -> Tensor:
        batch, count, _ = rows.shape
        longer = nn.functional.pad(rows, (0, 0, 0, 1))
        out = longer.new_empty(batch, count + 1, len(weight))
        out[:, :-1] = bias
        out[:, -1] = last
        out.view(-1, len(weight)).addmm_(longer.view(-1, weight.shape[1]), weight.t())
        ctx.save_for_backward(longer, weight)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        longer, weight = ctx.saved_tensors
        flat, to_last = gradient.reshape(-1, len(weight)), gradient[:, -1]
        to_weight = flat.t() @ longer.view(-1, longer.shape[-1])
        to_rows = gradient[:, :-1] @ weight if ctx.needs_input_grad[0] else None
        return to_rows, to_weight, flat.sum(0) - to_last.sum(0), to_last
