"""`known_parameters`: refuses misspelt and repeated query parameters."""

from __future__ import annotations

from fastapi import Request, params
from fastapi.dependencies.utils import get_flat_params

from movemask.errors import InvalidParameter
from movemask.server.problems import near_or_all, shown


async def known_parameters(http: Request) -> None:
    """Raises InvalidParameter for a query parameter that the route does not have, or that is repeated.

    POST routes have none. The page at `/` accepts any: sites that show a link to it may add their own.
    """
    route = http.scope["route"]
    if not http.query_params or route.path == "/":
        return
    post = http.app.state.posts.get(route.path)
    fields = get_flat_params(route.dependant)
    known = [field.alias for field in fields if isinstance(field.field_info, params.Query)]
    names = [name for name, _ in http.query_params.multi_items()]
    for name in names:
        if name not in known:
            hint = near_or_all(name, known)
            if post is not None and name in post.request_model.model_fields:
                hint = "send it in the body" if route is post else f"use POST {route.path}, and send it in the body"
            raise InvalidParameter(f"{shown(name)}: {http.url.path} has no such query parameter; {hint}")
        if names.count(name) > 1:
            raise InvalidParameter(f"{name}: is given {names.count(name)} times; give it once")
