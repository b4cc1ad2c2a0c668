"""What the network is trained towards; all in nats, means over `B` positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from training.maia3 import Lesson


def taught_loss(logits: Tensor, lesson: Lesson, legal: Tensor) -> Tensor:
    """Mean of the `divergences`."""
    return divergences(logits, lesson, legal).mean()


def divergences(logits: Tensor, lesson: Lesson, legal: Tensor) -> Tensor:
    """KL divergences `[B]` of the policies over the legal slots, `[B, A]` each, from the teacher's."""
    expected = lesson.logits.masked_fill(~legal, -torch.inf).log_softmax(1).masked_fill(~legal, 0.0)
    own = logits.masked_fill(~legal, -torch.inf).log_softmax(1).masked_fill(~legal, 0.0)
    return (expected.exp() * legal * (expected - own)).sum(1)


def played_loss(logits: Tensor, slot: Tensor, legal: Tensor) -> Tensor:
    """Mean of the `surprises`."""
    return surprises(logits, slot, legal).mean()


def surprises(logits: Tensor, slot: Tensor, legal: Tensor) -> Tensor:
    """Cross-entropies `[B]` over the legal slots at the slot that was played `[B]`."""
    return functional.cross_entropy(logits.masked_fill(~legal, -torch.inf), slot, reduction="none")


def rules_loss(logits: Tensor, legal: Tensor) -> Tensor:
    """-ln of the probability that all `legal` slots `[B, A]` have together: 0 where nothing leaks."""
    return (logits.logsumexp(1) - logits.masked_fill(~legal, -torch.inf).logsumexp(1)).mean()


def value_loss(value: Tensor, lesson: Lesson) -> Tensor:
    """KL divergence of win, draw and loss, logits `[B, 3]`, from the teacher's; the lesson must have a value."""
    assert lesson.value is not None, "a ready policy has no value"
    expected = lesson.value.log_softmax(1)
    return (expected.exp() * (expected - value.log_softmax(1))).sum(1).mean()


def outcome_loss(value: Tensor, result: Tensor) -> Tensor:
    """Cross-entropy of win, draw and loss, logits `[B, 3]`, at the result `[B]`, where it is known (not -1)."""
    total = functional.cross_entropy(value, result, ignore_index=-1, reduction="sum")
    return total / (result >= 0).sum().clamp(min=1)


def states_loss(own: list[Tensor], expected: list[Tensor]) -> Tensor:
    """Mean over the states `[B, 64, D]` of their squared difference, relative to the square of the teacher's."""
    differences = [
        (mine.float() - theirs.float()).square().mean() / theirs.float().square().mean()
        for mine, theirs in zip(own, expected, strict=True)
    ]
    return torch.stack(differences).mean()
