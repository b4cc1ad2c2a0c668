"""`Muon`: PyTorch's optimizer of that name with the orthogonalization in float32.

PyTorch's computes it in bfloat16 on every device. A processor without `avx512_bf16` takes 28 times as long for that
(256 x 1024), so it took most of a step's time.

Source: K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024,
https://kellerjordan.github.io/posts/muon/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt
from typing import Any

import torch
from torch import Tensor

#: The polynomial a x + b x^3 + c x^5, whose repetition takes singular values to about 1.
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
_REPETITIONS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices `[M, N]`. The rate is scaled so that a step is as large as AdamW's (`match_rms_adamw`).

    Its state is that of `torch.optim.Muon`.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """A step of all matrices that have a gradient. `closure` is not used."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                average = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                update = orthogonal(matrix.grad.lerp(average, momentum))
                matrix.mul_(1 - rate * group["weight_decay"])
                matrix.add_(update, alpha=-0.2 * rate * sqrt(max(matrix.shape)))


def orthogonal(matrix: Tensor) -> Tensor:
    """`[M, N]`: the matrix with all its singular values near 1, by Newton and Schulz's iteration."""
    a, b, c = _COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=_TINY)
    for _ in range(_REPETITIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x
