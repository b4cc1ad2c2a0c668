"""`rule_of`: a `Normalisation` from keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from movemask.errors import InvalidRule
from movemask.policy.normalisation import Normalisation

_RULE = TypeAdapter(Normalisation)


def rule_of(options: Mapping[str, Any]) -> Normalisation:
    """Returns the rule of these options.

    None counts as left out. Raises InvalidRule, which names the wrong option.
    """
    try:
        return _RULE.validate_python(
            {name: value for name, value in options.items() if value is not None}
        )
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "unexpected_keyword_argument":
            known = ", ".join(("elo", *Normalisation.__dataclass_fields__))
            raise InvalidRule(
                f"{first['loc'][0]}: there is no such option; available: {known}"
            ) from None
        raise InvalidRule(f"{first['loc'][0]}: {first['input']!r:.60}: {first['msg']}") from None
