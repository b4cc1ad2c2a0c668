"""What the network is trained towards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def policy_loss(logits: Tensor, slot: Tensor, legal: Tensor | None, legality_weight: float = 1.0) -> Tensor:
    """Mean loss in nats of `logits` `[B, A]` at the slot that was played `[B]`.

    Cross-entropy over all slots is the sum of two: that over the legal slots, and -ln of the probability that all legal
    slots have together, which teaches the rules. `legality_weight` is the weight of the second. At 1 it is plain
    cross-entropy, and `legal` is not needed; at 0 the masked one: the network never learns the rules, and what it
    would leak says nothing about it.
    """
    if legality_weight == 1 or legal is None:
        return functional.cross_entropy(logits, slot)
    masked = logits.masked_fill(~legal, -torch.inf)
    loss = functional.cross_entropy(masked, slot)
    if legality_weight:
        loss = loss + legality_weight * rules_loss(logits, legal)
    return loss


def rules_loss(logits: Tensor, legal: Tensor) -> Tensor:
    """Mean of -ln of the probability that all `legal` slots `[B, A]` have together, in nats: 0 where nothing leaks."""
    masked = logits.masked_fill(~legal, -torch.inf)
    return (logits.logsumexp(1) - masked.logsumexp(1)).mean()


def taught_loss(logits: Tensor, slot: Tensor, taught_slots: Tensor, taught: Tensor, share: float) -> Tensor:
    """Mean cross-entropy of `logits` `[B, A]` over all slots, from what a teacher gives to `taught_slots` `[B, K]`,
    mixed with the slot that was played `[B]`; `share` of it is the teacher's.

    The teacher gives illegal slots little and slots that are left out nothing: that teaches the rules.
    """
    expected = (taught * logits.gather(1, taught_slots)).sum(1)
    played = logits.gather(1, slot[:, None])[:, 0]
    return (logits.logsumexp(1) - share * expected - (1 - share) * played).mean()


def value_loss(value: Tensor, result: Tensor) -> Tensor:
    """Mean cross-entropy of win/draw/loss logits `[B, 3]` at the result `[B]`, where it is known (not -1)."""
    total = functional.cross_entropy(value, result, ignore_index=-1, reduction="sum")
    return total / (result >= 0).sum().clamp(min=1)
