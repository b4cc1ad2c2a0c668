"""The optional dependencies of pyproject.toml, which some commands need and serving does not."""

from __future__ import annotations

from importlib.util import find_spec

from movemask.errors import MissingExtra

#: The modules of each extra, by the names they are imported by.
EXTRAS = {
    "audit": ("duckdb", "jinja2", "matplotlib", "pyarrow", "tqdm"),
    "client": ("httpx2",),
    "import": ("onnx",),
    "mcp": ("mcp",),
    "ray": ("ray",),
}


def require(extra: str, what: str) -> None:
    """Raises MissingExtra if a module of `extra` is not installed; `what` is the command or file that needs it."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'movemask[{extra}]', or in Docker the target `tools`"
        )
