"""A temperature as a parameter that is trained by gradient descent, with numpy alone.

Source of training it in log space: Radford et al. (2021), arXiv:2103.00020, section 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy.ragged import Float
from movemask.policy.softmax import softmax
from study.losses import temperature_loss


@dataclass
class LearnedTemperature:
    """A softmax whose temperature is trained. The parameter is `log T`, so that no step makes T negative."""

    log_temperature: float = 0.0

    @property
    def temperature(self) -> float:
        """T, above 0."""
        return float(np.exp(self.log_temperature))

    def policy(self, legal_logits: ArrayLike, indptr: ArrayLike) -> Float:
        """Probabilities `[N]` at the present temperature."""
        return softmax(legal_logits, indptr, self.temperature)

    def step(self, legal_logits: ArrayLike, indptr: ArrayLike, targets: ArrayLike, rate: float) -> float:
        """One step of gradient descent on the mean cross-entropy. Returns the loss before it, in nats.

        Arguments as in `losses.temperature_loss`; `rate` is the learning rate.
        """
        rows = temperature_loss(legal_logits, indptr, targets, self.temperature)
        self.log_temperature -= rate * float(rows.by_log_temperature.mean())
        return float(rows.loss.mean())
