"""The diagnosis: alternatives, planted mistakes, the quick look, `models check --diagnose`."""

from __future__ import annotations

import json
import math
import re
import shutil
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from movemask.board.position import Position
from movemask.cli import models as cli_models
from movemask.cli.models import diagnosis_table, quick_table
from movemask.cli.options import Progress
from movemask.encoding.variations import variation, variation_names, varied_vocabulary
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import MoveOutsideVocabulary
from movemask.leakage.known import BY_TAG
from movemask.network.contract import Contract
from movemask.network.model import Array, Model
from movemask.network.registry import open_model
from movemask.network_tools import diagnosis
from movemask.network_tools.alternatives import Altered, Change, alternatives
from movemask.network_tools.diagnosis import CLEAR, diagnose, probes, quick_look
from movemask.network_tools.installation import import_lc0
from tests.conftest import ROOT
from tests.networks import contract, write_fake
from tests.processes import run

MAIA = ROOT.parent / "shared" / "maia1"
HERE = ROOT / "models"
SHIPPED = sorted(file.stem for file in HERE.glob("*.toml"))
#: The one mistake that a thousand positions do not decide: it comes first, but is not called clear.
UNDECIDED = ("maia-1100", "clock_scale")
needs_maia = pytest.mark.skipif(not MAIA.exists(), reason="maia-1: ../shared/maia1 is not here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("maia")
    for file in sorted(MAIA.glob("*.pb.gz")):
        import_lc0(file, models, file.name.removesuffix(".pb.gz"))
    return models


@pytest.fixture(autouse=True)
def _fewer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 40th position, but for deep tests: enough for mistakes that are not faint."""
    if request.node.get_closest_marker("deep") is None:
        some = probes()[::40]
        monkeypatch.setattr(diagnosis, "probes", lambda: some)


def planted(model: Model, *names: str) -> Model:
    """The same network under a contract with these mistakes in it."""
    terms = model.contract.terms.model_copy(update={"variations": names})
    return Model(model.name, model.digest, model.contract.model_copy(update={"terms": terms}), model.session)


def applicable(planes: str, words: str) -> list[str]:
    return [name for name in variation_names() if variation(name).applies(planes, vocabulary(words))]


def test_alternatives_are_single_changes_with_advice() -> None:
    value = {"name": "v", "softmaxed": True}
    outputs = {"outputs": {"logits": "logits", "value": value}}
    inputs = {"inputs": {"planes": "planes", "elo_self": "a", "elo_opponent": "b"}}
    declared = contract("lc0-112", "lc0-1858", **outputs, **inputs)
    by_name = {alternative.name: alternative for alternative in alternatives(declared)}
    assert set(applicable("lc0-112", "lc0-1858")) < set(by_name)
    assert by_name["castling_slot"].contract.terms.variations == ("castling_slot",)
    assert by_name["castling_slot"].advice.endswith('add "castling_slot" to contract.variations')
    unmirrored = by_name["slots_unmirrored"]
    assert unmirrored.advice.endswith(
        "no contract reads such a network, since lc0-1858 has no slots for Black's promotions: export it with Black's "
        "moves mirrored (square ^ 56)"
    )
    lost = Position.read("4k3/8/8/8/8/8/1p6/4K3 b - - 0 1")
    for words in ("lc0-1858", "alphazero-4672", "maia2-1880", "movemask-1880", "maia3-4352"):
        with pytest.raises(MoveOutsideVocabulary):  # in none of the vocabularies that mirror
            varied_vocabulary(vocabulary(words), ["slots_unmirrored"]).legal_slots(lost)
    assert by_name["ratings swapped"].contract.inputs.elo_self == "b"
    assert by_name["value order loss_draw_win"].contract.outputs.value is not None
    assert sum(name.startswith("value order ") for name in by_name) == 5
    for alternative in by_name.values():
        read = Contract.model_validate(alternative.contract.model_dump(mode="json", by_alias=True))
        assert (read == declared) == bool(alternative.changes)
    wrong = contract("lc0-112", "lc0-1858")
    wrong = wrong.model_copy(update={"terms": wrong.terms.model_copy(update={"variations": ("clock_scale",)})})
    back = {alternative.name: alternative for alternative in alternatives(wrong)}["without clock_scale"]
    assert back.contract.terms.variations == ()
    assert back.advice.endswith('take "clock_scale" out of contract.variations')


@pytest.mark.parametrize("name", [SHIPPED[0], *(pytest.param(name, marks=pytest.mark.deep) for name in SHIPPED)])
def test_shipped_networks_are_read_rightly(name: str) -> None:
    result = diagnose(open_model(HERE / f"{name}.toml", threads=1))
    assert not result.better, [finding.name for finding in result.better]
    assert result.unreadable is None
    assert {figures.name for figures in result.by_tag} >= {"castling", "promotion", "en_passant", "capture", "black"}


def test_unreadable_contract_ranks_readable_first(shipped: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "probes", lambda: probes()[::30])  # here each change takes a run of its own
    result = diagnose(planted(shipped, "slots_unmirrored"))
    assert result.unreadable is not None
    assert "has no slot in the vocabulary movemask-1880" in result.unreadable
    assert result.better[0].name == "without slots_unmirrored"


@needs_maia
@pytest.mark.deep
@pytest.mark.parametrize("name", ["maia-1100", "maia-1500", "maia-1900"])
@pytest.mark.parametrize("mistake", [None, *applicable("lc0-112", "lc0-1858")])
def test_mistakes_planted_in_maia_are_named_first(name: str, mistake: str | None, folder: Path) -> None:
    model = open_model(folder / f"{name}.toml", threads=1)
    if mistake is None:
        assert not diagnose(model).better
    else:
        result = diagnose(planted(model, mistake))
        assert result.findings[0].name == f"without {mistake}"
        if (name, mistake) == UNDECIDED:
            assert 3 < result.findings[0].z < CLEAR
        else:
            assert result.better


def pieces(*order: int) -> Change:
    """Takes each of the twelve pieces, P to K of the mover, then of the opponent, from another, in all eight positions
    of `movemask-tokens-99`."""

    def change(tokens: Array) -> Array:
        history, rest = tokens[..., :96], tokens[..., 96:]
        reordered = history.reshape(*history.shape[:2], 8, 12)[..., list(order)]
        return np.concatenate([reordered.reshape(history.shape), rest], axis=2)

    return change


def transposed(tokens: Array) -> Array:
    """Ranks for files."""
    return tokens.reshape(len(tokens), 8, 8, -1).swapaxes(1, 2).reshape(tokens.shape)


def in_the_network(model: Model, **changes: Change) -> Model:
    """The same contract for a network with these mistakes in it, by the names of its inputs and outputs."""
    return Model(model.name, model.digest, model.contract, Altered(model.session, changes))


@pytest.fixture(scope="module")
def shipped() -> Model:
    return open_model(HERE / "movemask-8.toml", threads=1)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"planes": pieces(0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11)}, "piece planes N and B exchanged"),
        ({"logits": lambda z: z * 2}, "logits multiplied by "),
        ({"logits": lambda z: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)}, "logits probabilities"),
        ({"value": lambda v: v[:, [1, 0, 2]]}, "value order draw_win_loss"),
        ({"planes": transposed}, "planes transposed"),
        ({"elo_self": lambda r: 3000 - r, "elo_opponent": lambda r: 3000 - r}, "ratings inverted"),
    ],
)
@pytest.mark.deep  # `test_diagnose_gives_advice_and_exits_with_1` has one that is named first
def test_mistake_planted_in_shipped_network_is_named(shipped: Model, changes: dict[str, Change], name: str) -> None:
    result = diagnose(in_the_network(shipped, **changes))
    assert result.better[0].name.startswith(name)
    assert result.misread


@pytest.mark.deep
def test_unknown_mistake_is_misread_without_advice(shipped: Model) -> None:
    """Three pieces moved round: every known change leaves it as bad as chance."""
    result = diagnose(in_the_network(shipped, planes=pieces(0, 1, 3, 4, 2, 5, 6, 7, 9, 10, 8, 11)))
    assert result.misread
    assert result.chance
    assert not result.better, [finding.name for finding in result.better]
    table = diagnosis_table(result)
    assert ". In castling: the moves played have a perplexity of " in table
    assert table.endswith("READ WRONGLY, or untrained: none of the known mistakes explains it.")


@pytest.mark.parametrize(
    ("variation_", "verdict", "words"),
    [
        ("", "right", ""),
        ("castling_slot", "wrong", "castling: the moves played have a perplexity of "),
        pytest.param(
            *("promotion_order", "wrong", "promotion: the moves played have a perplexity of "), marks=pytest.mark.deep
        ),
    ],
)
def test_quick_look_finds_gross_mistakes(
    shipped: Model, monkeypatch: pytest.MonkeyPatch, variation_: str, verdict: str, words: str
) -> None:
    monkeypatch.setattr(diagnosis, "probes", probes)
    look = quick_look(planted(shipped, variation_) if variation_ else shipped, seconds=math.inf)
    assert (look.verdict, look.positions) == (verdict, 518)
    assert words in "".join(look.chance)
    if verdict == "right":
        assert all(tagged.raw_mean <= 1.05 * BY_TAG[tagged.name] for tagged in look.by_tag)
        assert quick_table(look, "net").endswith(". Nothing is wrong, as far as this shows.")


def test_samples_of_probes_have_both_sides() -> None:
    """A network that misreads Black's half of the board must show in the quick look and in a first comparison."""
    groups: dict[str, list[str]] = {}
    for probe in probes():
        groups.setdefault(probe.group, []).append(probe.position.turn)
    for turns in [*groups.values(), [*chain.from_iterable(groups.values())]]:
        for step in (diagnosis._EVERY, -(-len(turns) // diagnosis._FEW)):
            sample = turns[::step]
            assert min(sample.count("white"), sample.count("black")) >= 0.3 * len(sample)


def test_high_leakage_is_suspicious(shipped: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "probes", probes)
    hundreds = {"elo_self": lambda r: r / 100, "elo_opponent": lambda r: r / 100}
    look = quick_look(in_the_network(shipped, **hundreds), seconds=math.inf)
    assert look.verdict == "suspicious"
    assert "times that of networks that are read rightly" in quick_table(look, "net")
    assert "models check net --diagnose" in quick_table(look, "net")


def test_quick_look_of_a_slow_network_is_bounded(shipped: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "probes", probes)
    look = quick_look(shipped, seconds=0)
    assert (look.verdict, look.positions) == ("right", 192)


def test_diagnosis_json_matches_table(tmp_path: Path) -> None:
    write_fake(tmp_path, "noise")
    result = run("models", "check", "noise", "--diagnose", "--json", "--models-dir", tmp_path)
    assert result.exit_code == 1
    (model,) = json.loads(result.stdout)["models"]
    assert (model["name"], model["keeps_contract"], model["steps"][0]["name"]) == ("noise", True, "tensors")
    report = model["diagnosis"]
    assert report["read_wrongly"]
    assert report["no_better_than_chance"]
    assert {figures["name"] for figures in report["by_tag"]} == set(diagnosis.REPORTED_TAGS)
    assert {one["verdict"] for one in report["alternatives"]} >= {"undecided"}
    plain = json.loads(run("models", "check", "noise", "--json", "--models-dir", tmp_path).stdout)["models"][0]
    assert "diagnosis" not in plain


def test_diagnose_gives_advice_and_exits_with_1(tmp_path: Path) -> None:
    for ending in ("toml", "onnx"):
        shutil.copy(HERE / f"{SHIPPED[0]}.{ending}", tmp_path / f"wrong.{ending}")
    text = (tmp_path / "wrong.toml").read_text().replace(SHIPPED[0], "wrong")
    (tmp_path / "wrong.toml").write_text(text.replace("[contract]\n", '[contract]\nvariations = ["castling_slot"]\n'))
    result = run("models", "check", "wrong", "--diagnose", "--models-dir", tmp_path)
    assert result.exit_code == 1
    last = result.output.strip().splitlines()[-1]
    assert "CLEARLY BETTER: not trained with castling in the other form" in result.output, last
    assert 'take "castling_slot" out of contract.variations' in result.output


def test_diagnose_all_runs_each_network_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "probes", lambda: probes()[::30])
    for name in ("first", "masked"):
        write_fake(tmp_path, name, trained_with_mask=name == "masked")
    for ending in ("toml", "onnx"):
        shutil.copy(tmp_path / f"first.{ending}", tmp_path / f"copy.{ending}")
    result = run("models", "check", "--diagnose", "--models-dir", tmp_path)
    progress = [line for line in result.stderr.splitlines() if line.startswith("diagnosing ")]
    assert progress[0].startswith("diagnosing 3 networks (give a NAME to diagnose one): one to two minutes of CPU time")
    assert progress[1:] == ["diagnosing copy (1 of 3)", "diagnosing masked (3 of 3)"]
    assert "first: keeps its contract" in result.stdout
    assert result.stdout.count("the same network and contract as copy") == 1
    assert result.stdout.count("READ WRONGLY") == 2  # `masked` is the same file by another contract


def test_diagnosis_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "probes", lambda: probes()[::30])
    monkeypatch.setattr(cli_models, "Progress", lambda: Progress(seconds=0))
    write_fake(tmp_path, "noise")
    progress = run("models", "check", "noise", "--diagnose", "--models-dir", tmp_path).stderr.splitlines()
    assert progress[0].startswith("diagnosing noise: one to two minutes of CPU time")
    assert progress[1] == "reading it as declared"
    places = [re.fullmatch(r"(\d+) of (\d+) other ways to read it: .+", line) for line in progress[2:]]
    assert [(int(place[1]), int(place[2])) for place in places if place] == [
        (number, len(places)) for number in range(1, len(places) + 1)
    ]
    assert len(places) > 20


def test_progress_in_a_log_is_a_line_per_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("movemask.cli.options.time.monotonic", lambda: now[0])
    progress = Progress()
    for now[0] in (1.0, 9.9, 10.5, 12.0, 20.4, 20.5, 99.0):
        progress(f"at {now[0]}")
    progress.clear()
    assert capsys.readouterr().err.splitlines() == ["at 10.5", "at 20.5", "at 99.0"]


def test_masked_training_is_judged_by_moves_alone(tmp_path: Path) -> None:
    model = open_model(write_fake(tmp_path, trained_with_mask=True), threads=1)
    result = diagnose(model)
    assert not result.uses_leakage
    assert all(finding.leakage is None for finding in result.findings)
    assert not result.better  # noise has no better way to be read
    assert result.misread
