"""Documents: links, anchors, and the files, modules and scripts that they name."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ("docs", "benchmarks/results", "models", "training")
PATTERNS = ("*.md", "*/README.md", *(f"{folder}/*.md" for folder in FOLDERS), "study/*.ipynb", "examples/*.ipynb")
LINKED = sorted({file.relative_to(ROOT) for pattern in PATTERNS for file in ROOT.glob(pattern)})
#: Without those that tell a history, and so name what there was once.
DOCUMENTS = [document for document in LINKED if document.name not in ("CHANGELOG.md", "log.md")]
TRACKED = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
TOP = sorted({re.escape(name.partition("/")[0]) for name in TRACKED if "/" in name})
#: Folders with modules, by the name they are imported by.
PACKAGES = {name: ROOT / name for name in ("benchmarks", "study", "tests", "training")}
PACKAGES["movemask"] = ROOT / "service/movemask"
#: What is written like a module and is none: files, fields of the log, a setting of a run.
NOT_MODULES = {
    *(f"movemask.{name}" for name in ("db", "json", "exe", "bat", "model", "positions", "request_id", "encoders")),
    "training.bfloat16",
}


def text_of(document: Path) -> str:
    """The Markdown of a page or of all cells of a notebook, with the code."""
    text = (ROOT / document).read_text()
    if document.suffix == ".ipynb":
        return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.S | re.M))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings as GitHub makes them, and those of its HTML elements."""
    result = set(re.findall(r'<\w+ id="([^"]+)"', text))
    counts: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+?)\s*$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        result.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
        counts[slug] += 1
    return result


@pytest.mark.parametrize("document", LINKED, ids=str)
def test_links_and_anchors_exist(document: Path) -> None:
    text = without_code(text_of(document))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^]]+\]: (\S+)", text, re.M)
    for target in targets:
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / document.parent / path) if path else ROOT / document
        assert file.exists(), target
        on_site = document.parent.name != "docs" or (ROOT / "docs") in file.resolve().parents
        assert on_site, f"{target} is not on the site: write the name of the file"
        if anchor:
            assert anchor in anchors(text_of(file.resolve().relative_to(ROOT))), target


def exists(path: str, folder: Path) -> bool:
    """Whether a file or folder has this path: in the repository, in `folder` or in the package.

    In a path, words in capitals and … stand for anything.
    """
    pattern = re.sub(r"\b[A-Z_]{3,}\b|…", "*", path).rstrip("/.")
    return any(any(root.glob(pattern)) for root in (ROOT, folder, PACKAGES["movemask"]))


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module of the repository, or is written in one."""
    package, *rest = name.split(".")
    place = PACKAGES[package]
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if rest and (place / f"{rest[0]}.py").exists():
        place = place / f"{rest.pop(0)}.py"
    source = place if place.is_file() else place / "__init__.py"
    return not rest or re.search(rf"\b{rest[0]}\b", source.read_text()) is not None


def folders(name: str) -> list[Path]:
    return [file for root in PACKAGES.values() for file in (root, *root.rglob(name)) if file.name == name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_files_and_modules_exist(document: Path) -> None:
    text = text_of(document)
    folder = (ROOT / document).parent
    paths = re.findall(rf"(?<![\w./:-])(?:\./)?((?:{'|'.join(TOP)})/[\w./…@-]+)", text)
    paths += re.findall(r"`([\w/]+/\w+\.(?:py|js|sh|toml))`", text)
    assert [path for path in paths if not exists(path, folder)] == []
    modules = re.findall(rf"(?<![\w./-])((?:{'|'.join(PACKAGES)})(?:\.[a-z_]\w*)+)(?!\w*[/:*-])", text)
    assert [name for name in modules if name not in NOT_MODULES and not module_exists(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_figures_name_no_old_commit(document: Path) -> None:
    """Figures are made by a command of this tree, or cited."""
    assert re.findall(r"at commit [0-9a-f]{7,}", text_of(document)) == []


def test_notebook_names_existing_modules() -> None:
    """The study once sent its reader to `numeric.distributions`, which was gone."""
    modules = {file.stem for root in PACKAGES.values() for file in root.rglob("*.py")}
    for notebook in (document for document in DOCUMENTS if document.suffix == ".ipynb"):
        pairs = re.findall(r"`([a-z_]+)\.([a-z_]+)\b", text_of(notebook))
        assert [pair for pair in pairs if pair[1] in modules and not (folders(pair[0]) or find_spec(pair[0]))] == []


def test_site_navigation_has_all_pages() -> None:
    navigation = (ROOT / "zensical.toml").read_text()
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == set(re.findall(r'"(\w+\.md)"', navigation))
