"""The optional dependencies of pyproject.toml: what a command needs that serving does not."""

from __future__ import annotations

from importlib.util import find_spec

from movemask.errors import MissingExtra

#: The modules of each extra that commands ask for, as they are imported.
EXTRAS = {
    "audit": ("jinja2", "matplotlib", "pyarrow", "tqdm", "zstandard"),
    "import": ("onnx",),
}


def require(extra: str, what: str) -> None:
    """Raises MissingExtra if a module of `extra` is not installed. `what` needs it: a command, or a file."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'movemask[{extra}]', or in Docker the target `tools`"
        )
