"""Writes reports on games into their PGN: comments, glyphs and a summary. The rest of the PGN stays as it is.

With an engine it also writes the missing evaluations (`[%eval]`), so that moves get their marks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import chess.engine
import chess.pgn

from movemask.board.evaluations import without_evaluations
from movemask.board.openings import opening_of
from movemask.board.pgn import Parsed, fen_tag, odd_tags
from movemask.board.split import GameText, escaped
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluator
from movemask.games.costs import BLUNDER, INACCURACY, MISTAKE, Cost, Mark
from movemask.games.engine import Evaluations
from movemask.games.judging import judged
from movemask.games.reasons import reason_of
from movemask.games.reports import (
    GameReport,
    MoveReport,
    SideReport,
    completed,
    costs_of,
    moments_of,
    percent,
    reports_of,
    words_of,
)
from movemask.policy.normalisation import Temperature

#: Games that are read and evaluated together.
_GAMES_TOGETHER = 16

#: A reason of `reason_of`.
_PIECES = r"(?:the|a|two|three|four|\d+) (?:exchange|pawn|knight|bishop|rook|queen)s?"
_WHY = (
    r"(?:stalemates|draws|allows mate in \w+|misses \S+ mate|misses mate in \w+(?: with \S+)?"
    rf"|(?:loses|misses \S+ winning) {_PIECES}(?: on [a-h][1-8])?(?: (?:and|for) {_PIECES})*)"
)

#: Comments of an earlier run, which a new run replaces. A match ends before the next comment can begin, so that the
#: search is linear in the length of the text.
_OURS = re.compile(
    r"\s?(?:P [\d.e-]+ % \((?:only|first|\d+\w\w of)[^()]*\)(?:, surprise [\d.]+)?|P not judged \(no slot\))"
    r"(?:; (?:(?:blunder|mistake|inaccuracy): )?"
    rf"(?:{_WHY}(?: and cost \d+ points?)?|cost \d+ points?)"
    r"(?:, made by [\d.e-]+ % at \d+(?:, [\d.e-]+ % at \d+)*)?)?"
    r"|\s?movemask: (?:(?!movemask: )[^{}])*? nats\."
)
_REASON = re.compile(r"\{ movemask: pgn: [^}]*\}\n?")
#: A line number in an error. It is removed, because the written file has other lines.
_PLACE = re.compile(r"\bline \d+: ")

_QUALITY = frozenset(range(1, 7))  # $1 to $6; a move has at most one of these glyphs


#: The glyphs of the marks, and their meaning for the summary of a game.
_GLYPHS: Mapping[Mark, int] = {
    "inaccuracy": chess.pgn.NAG_DUBIOUS_MOVE,
    "mistake": chess.pgn.NAG_MISTAKE,
    "blunder": chess.pgn.NAG_BLUNDER,
}
_MARKS = f"?! cost {100 * INACCURACY:.0f} points or more of 100, ? {100 * MISTAKE:.0f}, ?? {100 * BLUNDER:.0f}"


class _Exporter(chess.pgn.StringExporter):
    """Writes the movetext. A Result tag may hold any text, but only results end the moves: other programs take 0-0
    for castling."""

    def visit_result(self, result: str) -> None:
        super().visit_result(result if result in ("1-0", "0-1", "1/2-1/2") else "*")


@dataclass(frozen=True, slots=True)
class Annotated:
    """A game with comments, and the report on it.

    A game that cannot be played through has no tree; its text stays, and `report` is the error. For text outside games,
    `report` is an error or None.
    """

    text: GameText | None
    tree: chess.pgn.Game | None
    report: GameReport | MovemaskError | None

    @property
    def no_game(self) -> bool:
        """Whether this is the error for a whole text without games."""
        return self.report is not None and (self.text is None or self.text.role == "trailing")

    def __str__(self) -> str:
        if self.tree is not None:
            moves = self.tree.accept(_Exporter(headers=False, columns=80))
            return f"{self._tags(self.tree)}\n\n{moves}"
        if self.text is not None and (self.text.role == "outside" or self.report is None):
            return self.text.text.strip()
        text, at = (self.text.text, self.text.moves_at) if self.text is not None else ("", 0)
        moves = text[at:]
        if earlier := _REASON.match(moves):
            moves = moves[earlier.end() :]
        reason = _PLACE.sub("", str(self.report)).replace("}", ")")
        return f"{text[:at]}{{ movemask: {reason} }}\n{moves}".strip()

    def _tags(self, tree: chess.pgn.Game) -> str:
        """A line per tag: the tags of python-chess's game, then the tags whose names python-chess refuses."""
        original = self.text.tags if self.text is not None else {}
        tags = {**tree.headers, **odd_tags(original)}
        if "FEN" in tags:
            tags["FEN"] = fen_tag(original) or tags["FEN"]  # as it was, not as it was repaired
        return "\n".join(f'[{name} "{escaped(value)}"]' for name, value in tags.items())


async def annotated(
    evaluator: Evaluator,
    trees: Iterable[Parsed],
    temperature: Temperature = 1.0,
    *,
    elo: tuple[float, float] | None = None,
    engine: Evaluations | None = None,
    reasons: bool = True,
    charge: Callable[[int], None] = lambda positions: None,
) -> AsyncIterator[Annotated]:
    """The games of a PGN (`read_trees`), annotated, and the text outside them. `reasons` : as for `judged`. `charge` :
    as for `costs_of`.

    A few games are read together. Raises the errors of `trees`, and those of model and queues.
    """
    name, unread = evaluator.model.name, iter(trees)
    while group := await asyncio.to_thread(list, islice(unread, _GAMES_TOGETHER)):
        games = [parsed.game for parsed in group if parsed.game is not None]
        costs = await costs_of(games, charge)
        looks = None if engine is None else judged(engine, costs, reasons=reasons)
        known = await reports_of(evaluator, games, temperature, elo, costs)
        if looks is not None:
            known, _ = await completed(evaluator, looks, known)
        reports = iter(known)
        for text, tree, game in group:
            report = None if game is None else next(reports)
            if tree is not None and report is not None:
                await asyncio.to_thread(
                    annotate, tree, report, name, with_engine=engine is not None
                )
            yield Annotated(text, tree, report)


def annotate(
    tree: chess.pgn.Game,
    report: GameReport | MovemaskError,
    model: str,
    *,
    with_engine: bool = False,
) -> None:
    """Adds comments and glyphs to the main line of a game, and the opening to headers without one.

    A game that the network cannot judge gets only the reason. `with_engine` : whether an engine was asked for the
    evaluations; the summary then names the number of those that are missing.
    """
    if isinstance(report, MovemaskError):
        tree.comment = _joined(tree.comment, f"movemask: {report}")
        return
    nodes = [tree, *tree.mainline()]
    for place, evaluation in report.costs.evaluations.items():
        if report.game.scores[place] is None:
            nodes[place].comment = without_evaluations(nodes[place].comment)
            nodes[place].set_eval(evaluation.score)
    sides = (
        (name, side)
        for name, side in (("White", report.white), ("Black", report.black))
        if side is not None
    )
    words = [
        model,
        _MARKS,
        *(note.replace("}", ")").replace("{", "(") for note in report.game.notes),
    ]
    if with_engine and (missing := len(report.costs.missing)):
        words.append(f"{missing} positions without an evaluation by the engine")
    moments = [f"{moment.mark or 'fault'}: {moment.text[:-1]}" for moment in moments_of(report)]
    if moments:
        words += [f"moments: {moments[0]}", *moments[1:]]
    named = (
        {"ECO": opening.eco, "Opening": opening.name}
        if (opening := opening_of(report.game.played))
        else {}
    )
    tree.headers.update(
        {name: text for name, text in named.items() if tree.headers.get(name, "?") in ("?", "")}
    )
    summary = "; ".join([*words, *(f"{name} {_summary(side)}" for name, side in sides)])
    tree.comment = _joined(tree.comment, f"movemask: {summary}, surprise in nats.")
    for node, move, cost in zip(nodes[1:], report.moves, report.costs, strict=True):
        node.comment = _joined(
            node.comment,
            _comment(
                move,
                cost,
                reason_of(report.costs, move.ply - 1),
                report.by_rating.get(move.ply, {}),
            ),
        )
        if cost.mark is not None and not node.nags & _QUALITY:
            node.nags.add(_GLYPHS[cost.mark])


def _joined(there: str, ours: str) -> str:
    """A comment with our text added; our text of an earlier run is removed."""
    return " ".join(filter(None, [_OURS.sub("", there).strip(), ours]))


def _comment(
    move: MoveReport, cost: Cost, reason: str | None, by_rating: Mapping[float, float]
) -> str:
    if move.probability is None or move.rank is None or move.surprise is None:
        return f"P not judged (no slot){_judged(cost, reason, by_rating)}"
    if move.legal == 1:
        return "P 100 % (only move)"
    first = ""
    if move.rank > 1:
        first = f"; {move.position.sans([move.best])[0]} {100 * move.best_probability:.1f} %"
    place = f"{_ordinal(move.rank)} of {move.legal}" if move.rank > 1 else "first choice"
    judged = _judged(cost, reason, by_rating)
    return f"P {percent(move.probability)} ({place}{first}), surprise {move.surprise:.2f}{judged}"


def _judged(cost: Cost, reason: str | None, by_rating: Mapping[float, float]) -> str:
    """Why a move was a mistake and what it cost, in words."""
    words = words_of(cost, reason)
    mark = f"{cost.mark}: " if cost.mark is not None else ""
    rates = ", ".join(f"{percent(share)} at {rating:.0f}" for rating, share in by_rating.items())
    return f"; {mark}{words}{', made by ' if rates else ''}{rates}" if words else ""


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def _summary(side: SideReport) -> str:
    return f"{side.moves} moves, mean surprise {side.cross_entropy:.2f}, first choice {100 * side.top1:.0f} %"
