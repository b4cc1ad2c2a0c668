"""What a user of the cache would lose: the right network's word on the right position, and a bound on memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate
from movemask.network.model import Model, Outputs
from movemask.policy.normalisation import Normalisation
from movemask.server.cache import Cache, CachedModel, key_of
from tests.ground_truth import random_game, tricky
from tests.networks import batch_of, fake_model, rated_model


def outputs(number: float, size: int = 100) -> Outputs:
    return Outputs(np.full((3, size), number, dtype=np.float32), None)


def cached(model: Model, cache: Cache, counts: list[tuple[int, int]]) -> CachedModel:
    """The model with a cache; `counts` gets the hits and misses of each batch."""

    def observe(name: str, hits: int, misses: int, size: int) -> None:
        counts.append((hits, misses))

    return CachedModel(model.name, model.digest, model.contract, model.session, cache, observe)


def test_the_least_recently_used_is_forgotten_and_the_bound_is_kept() -> None:
    cache = Cache(4 * 1200)
    for number in range(4):
        cache.put(number, outputs(number), 0)
    found = cache.get(0)
    assert found is not None
    assert found.logits.base is None  # not a view, which would keep its whole batch
    cache.put(4, outputs(4.0), 0)
    assert [cache.get(number) is not None for number in range(5)] == [True, False, True, True, True]
    assert cache.bytes <= 4 * 1200
    cache.put(5, outputs(5.0, size=10_000), 0)  # more than there is room for
    assert [cache.get(number) is not None for number in (4, 5)] == [True, False]


@pytest.mark.parametrize(
    ("planes", "sees_history"), [("lc0-112", True), ("maia2-18", False), ("movemask-tokens-99", True)]
)
def test_positions_are_told_apart_by_what_the_network_sees(planes: str, sees_history: bool) -> None:
    model = fake_model(planes=planes, words="lc0-1858")
    assert model.contract.takes_history == sees_history

    def key(position: Position) -> object:
        return key_of(batch_of(model, [position]), 0, model)

    short = Position.read(moves=["g1f3", "g8f6"])
    other = Position.read(short.fen, [])
    assert (key(short) == key(other)) is not sees_history
    assert key(short) == key(Position.read(moves=["g1f3", "g8f6"]))
    assert key(other) != key(Position.read(other.fen.replace(" w ", " b ")))
    assert key(other) != key(Position.read(other.fen.replace(" 2 2", " 3 2")))
    assert key(other) != key(Position.read(other.fen, chess960=True))


FENS = [fen for fen, _, flags in tricky() if not flags][:24]
RATED = rated_model(planes="lc0-112", words="lc0-1858")


#: Random games: for a network that sees history, positions that are alike are not the same.
PLAYED = [Position.read(moves=[move.uci() for move in random_game(plies % 3, plies)]) for plies in range(1, 9)]
POSITIONS = [Position.read(fen) for fen in FENS] + PLAYED
POSITIONS += [Position.read(position.fen) for position in PLAYED]  # the same without its history
POSITIONS = [position for position in POSITIONS if any(position.board.legal_moves)]
ELOS: Sequence[Elo | None] = (None, Elo(1500, 1500), Elo(1500, 1600))

#: Positions that a cache may hold in which nothing is forgotten.
ENOUGH = 2_000

asked = st.tuples(st.integers(0, len(POSITIONS) - 1), st.sampled_from(ELOS))


@given(
    batches=st.lists(st.lists(asked, min_size=1, max_size=12), max_size=6), room=st.sampled_from([0, 1, 3, 10, ENOUGH])
)
@settings(deadline=None, max_examples=60)
def test_with_a_cache_answers_are_those_without_and_every_position_is_a_hit_or_a_miss(
    batches: list[list[tuple[int, Elo | None]]], room: int
) -> None:
    cache = Cache(room * 9_000)
    seen: set[object] = set()
    counts: list[tuple[int, int]] = []
    network = cached(RATED, cache, counts)
    for rows in batches:
        batch = RATED.whole_batch([POSITIONS[at] for at, _ in rows], [elo for _, elo in rows])
        rules = [Normalisation()] * len(batch)
        right, found = evaluate(RATED, batch, rules), evaluate(network, batch, rules)
        np.testing.assert_array_equal(found.unmasked.logits, right.unmasked.logits)
        assert found.policies.lists == right.policies.lists
        np.testing.assert_array_equal(found.raw, right.raw)
        hits, misses = counts[-1]
        assert hits + misses == len(rows)
        assert found.ran == misses
        assert (found.seconds == 0) == (misses == 0)
        assert cache.bytes <= room * 9_000
        keys = {key_of(batch, row, RATED) for row in range(len(batch))}
        known = sum(key_of(batch, row, RATED) in seen for row in range(len(batch)))
        assert hits == known if room == ENOUGH else hits <= known
        seen |= keys


def test_what_was_loaded_anew_has_none_of_the_old_entries() -> None:
    cache = Cache(1_000_000)
    counts: list[tuple[int, int]] = []
    model = fake_model()
    start = batch_of(model, [Position.read()])
    for _ in range(2):  # as after the file behind a name has changed
        network = cached(model, cache, counts)
        network.run(start)
        network.run(start)
    assert counts == [(0, 1), (1, 0), (0, 1), (1, 0)]
