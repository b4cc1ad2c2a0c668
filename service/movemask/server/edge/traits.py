"""`Traits`: what a route declares to the middleware; `Table`: the traits of all routes, by method and path."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from starlette.routing import compile_path

#: Content-Security-Policy of responses that are no page.
NOTHING = b"default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traits:
    """What a route declares to the middleware.

    path : template of its path, for metrics and logs
    polled : is asked every few seconds: logged at debug unless it fails, and answered whatever is in flight
    free : costs a client's rate nothing
    any_host : answers to every host name, and to pages of every site: probes are asked by address
    timed : its durations have a histogram
    cached : its responses have an ETag, and a client may keep them
    shared : its responses are the same bytes for all requests, so they are not counted as bytes in flight
    compressed : a large response is compressed for clients that accept gzip
    csp : Content-Security-Policy of its responses
    """

    path: str
    polled: bool = False
    free: bool = False
    any_host: bool = False
    timed: bool = False
    cached: bool = False
    shared: bool = False
    compressed: bool = True
    csp: bytes = NOTHING


#: Of a path that no route has.
OTHER = Traits(path="other")


class Table:
    """The traits of all routes."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, Traits]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Traits]]] = []

    def add(self, methods: Collection[str], traits: Traits) -> None:
        """Adds a route. The first route of a method and path counts."""
        template = traits.path
        if template not in self._paths:
            self._paths[template] = {}
            if "{" in template:
                self._patterns.append((compile_path(template)[0], self._paths[template]))
        for method in methods:
            self._paths[template].setdefault(method, traits)

    def find(self, method: str, path: str) -> Traits:
        """Returns the traits of a request's route, or of another method's if the path has no route
        for this method. A template finds itself.
        """
        by_method = self._paths.get(path) or next(
            (traits for pattern, traits in self._patterns if pattern.match(path)), None
        )
        if by_method is None:
            return OTHER
        return by_method.get(method) or next(iter(by_method.values()))
