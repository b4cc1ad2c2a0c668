"""Problems, and the answers of the POST routes. A field that does not apply is left out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from movemask.board.openings import Opening
from movemask.schemas.choices import Method
from movemask.schemas.shapes import ByName, Items, Out

Turn = Literal["white", "black"]
Notation = Literal["uci", "san", "mixed"]
Mark = Literal["inaccuracy", "mistake", "blunder"]
Phase = Literal["opening", "middlegame", "endgame"]
Status = Literal["ongoing", "checkmate", "stalemate"]
DrawReason = Literal[
    "insufficient_material",
    "seventyfive_moves",
    "fivefold_repetition",
    "fifty_moves",
    "threefold_repetition",
]
PatternName = Literal["multiplied", "uniform", "castling_slot", "bare_promotion", "unmirrored"]
TrainedWithMask = Annotated[
    bool,
    Field(
        description="If true, the network's logits for illegal moves are arbitrary, and `raw` means nothing."
    ),
]

FORECAST = (
    "On request: `value` one ply deeper, from the network's values after the three likeliest moves."
)
FEN = "The position, after `moves`, with an en-passant square only if a capture there is legal."
INDEX = "Number of the position in the request, from 0."
ID = "The `id` of the position, if it has one."

TYPE_PREFIX = "urn:movemask:problem:"


class Problem(Out):
    """RFC 9457 problem details. `type` is stable, and `detail` names the offending input."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="A URN that never changes; docs/errors.md lists all.")
    title: str = Field(description="The type, in words for people.")
    status: int = Field(description="The HTTP status code; also set in items of a batch.")
    detail: str = Field(description="One sentence that names the offending input.")
    request_id: str | None = Field(
        None, description="As in X-Request-ID and the log; left out in items of a batch."
    )

    @property
    def name(self) -> str:
        """The last part of `type`."""
        return self.type.removeprefix(TYPE_PREFIX)


class ErrorOut(Out):
    """An item that failed."""

    error: Problem = Field(description="What is wrong with the item.")


class ModelOut(Out):
    """The network that answered."""

    name: str = Field(description="Its name in `/v1/models`.")
    digest: str = Field(description="SHA-256 of the network's file.")


class EloOut(Out):
    """The ratings that the network used: those of the request, clamped to its range, or the default."""

    own: float = Field(alias="self", description="Rating of the side to move, in Elo points.")
    opponent: float = Field(description="Rating of its opponent, in Elo points.")
    clamped: bool | None = Field(
        None,
        description="True if a rating of the request was outside the network's range; left out otherwise.",
    )


class MoveOut(Out):
    """A legal move."""

    uci: str = Field(description="The move in UCI.")
    san: str | None = Field(None, description="The move in SAN; on request.")
    probability: float = Field(
        description="Probability of the move, 0 to 1, with the requested rule."
    )
    logit: float | None = Field(
        None, description="The network's score, in nats up to a constant; on request."
    )


class ValueOut(Out):
    """The network's forecast of the result, for the side to move."""

    win: float | None = Field(
        description="Probability of a win; null if the network gives only the expected score."
    )
    draw: float | None = Field(description="Probability of a draw; null as for `win`.")
    loss: float | None = Field(description="Probability of a loss; null as for `win`.")
    score: float = Field(description="Expected score, 0 to 1: win + draw / 2.")


class LeakageOut(Out):
    """Probability on illegal moves."""

    raw: float | None = Field(
        description="Probability that plain softmax gives to illegal moves; null if unmeasured."
    )
    multiplied: float = Field(
        description="Probability that softmax(logits * mask) gives to illegal moves. A constant added to all logits "
        "changes it: do not compare it between networks."
    )
    served: float = Field(
        description="Probability that this answer gives to illegal moves; always 0."
    )
    trained_with_mask: TrainedWithMask


class StatisticsOut(Out):
    """Statistics of the probabilities, rescaled to a sum of 1 if there is an abstention."""

    entropy: float = Field(description="Entropy of the distribution, in nats.")
    effective_moves: float = Field(description="Effective number of moves: exp(entropy).")
    inverse_simpson: float = Field(description="Effective number of moves: 1 / sum p².")
    gini: float = Field(description="Gini coefficient, 0 (all moves equal) to 1.")
    maximum: float = Field(description="The highest probability, 0 to 1.")


class IllegalMoveOut(Out):
    """An illegal move that gets probability."""

    uci: str = Field(description="The move in UCI.")
    probability: float = Field(description="Probability of the move, 0 to 1.")
    cause: str | None = Field(
        description="Why the move is illegal; null if an older version did not store it."
    )


class IllegalOut(Out):
    """What plain softmax, without a mask, gives to illegal moves."""

    slots: int = Field(
        description="Number of slots of the vocabulary that are not legal moves here."
    )
    moves: Items[IllegalMoveOut] = Field(description="Most probable first, at most 20.")
    causes: ByName[float] = Field(description="All of this probability, by cause, largest first.")


class TimingOut(Out):
    """Where the time went."""

    queue_ms: float = Field(description="Milliseconds that the position waited for the network.")
    inference_ms: float = Field(
        description="Milliseconds that the network took for the batch with this position."
    )


class DrawOut(Out):
    """A draw by the laws of chess, in a position that has legal moves."""

    reason: DrawReason = Field(
        description="The strongest reason that applies. Repetitions are counted within the request's `moves`."
    )
    claimable: bool = Field(
        description="True: the player to move may claim a draw. False: the game is over."
    )


class Where(Out):
    """The position."""

    fen: str = Field(description=FEN)
    turn: Turn = Field(description="The side to move.")
    status: Status = Field(
        description="`ongoing` if there is a legal move, even in a drawn game: see `draw`."
    )
    notation: Notation | None = Field(
        None, description="How `moves` were read; left out without `moves`."
    )
    draw: DrawOut | None = Field(None, description="Left out if the position is not a draw.")


class PointOut(Out):
    """What a policy, a chosen move and a point of a sweep have in common. Without a legal move, the optional fields are
    left out."""

    model: ModelOut = Field(description="The network that answered.")
    value: ValueOut | None = Field(
        None, description="The network's forecast of the result; left out if it gives none."
    )
    leakage: LeakageOut | None = Field(
        None, description="What a wrong mask would have put on illegal moves."
    )
    abstention: float | None = Field(
        None, description="With `softmax_one`: the probability that no move gets."
    )
    statistics: StatisticsOut | None = Field(None, description="On request.")
    illegal: IllegalOut | None = Field(None, description="On request.")
    temperature: float | None = Field(
        None, description="What the logits were divided by, as a number."
    )
    elo: EloOut | None = Field(
        None, description="Ratings used; left out for networks without ratings."
    )
    without_slot: Items[str] | None = Field(
        None,
        description="Legal moves for which the network has no slot, in UCI; left out if it has one for each.",
    )
    ignored: Items[str] = Field(description="Inputs that this network cannot use, such as history.")
    timing: TimingOut | None = Field(None, description="Where the time went.")


class PolicyOut(PointOut, Where):
    """The move distribution of a position."""

    moves: Items[MoveOut] = Field(
        description="The legal moves that the filters keep, most probable first."
    )
    forecast: ValueOut | None = Field(None, description=FORECAST)


class MoveChosenOut(PointOut, Where):
    """The move that was chosen."""

    move: MoveOut | None = Field(description="The move to play; null if there is no legal move.")
    method: Method = Field(description="How it was chosen.")
    seed: int | None = Field(None, description="The seed that `sample` used. No unit.")
    seconds: float | None = Field(
        None, description="Only with `clock`: seconds that a human would think, by a rule of thumb."
    )


class ResultOut(PolicyOut):
    """The answer to a position of a batch."""

    index: int = Field(description=INDEX)
    id: str | None = Field(None, description=ID)


class FailureOut(ErrorOut):
    """A position of a batch that failed."""

    index: int = Field(description=INDEX)
    id: str | None = Field(None, description=ID)


class BatchOut(Out):
    """The answers to a batch."""

    results: Items[ResultOut | FailureOut] = Field(description="One for each position, in order.")


class SweptOut(Out):
    """A legal move along the sweep."""

    uci: str = Field(description="The move in UCI.")
    san: str | None = Field(None, description="The move in SAN; on request.")
    probabilities: Items[float] = Field(
        description="Probability at each point, 0 to 1; 0 if the filters drop the move."
    )


class SweepOut(Where):
    """One position at many ratings, or by many models."""

    points: Items[PointOut] = Field(description="In the order of the ratings or models.")
    moves: Items[SweptOut] = Field(description="Highest mean probability first.")


class NamedMoveOut(Out):
    """A move."""

    uci: str = Field(description="The move in UCI.")
    san: str = Field(description="The move in SAN.")


class CostOut(Out):
    """What a move of a game cost."""

    ply: int = Field(description="Number of the move in the game, in plies from 1.")
    lost: float | None = Field(
        None,
        description="What it cost: the fall of the mover's expected score, 0 to 1. Left out if it is unknown.",
    )
    source: Literal["rules", "evaluations", "engine"] | None = Field(
        None,
        description="Source of `lost`: the `rules`, `evaluations` in the PGN (`[%eval]`), or the service's `engine`.",
    )
    mark: Mark | None = Field(
        None,
        description="`inaccuracy`: cost 0.05 or more; `mistake`: 0.1 or more; `blunder`: 0.15 or more, as on lichess.",
    )
    fact: Literal["allows_mate", "misses_mate", "stalemates", "draws"] | None = Field(
        None,
        description="What the rules say about the move. Mates are mates in one that another move avoids or gives.",
    )
    line: Items[NamedMoveOut] | None = Field(
        None,
        description="What was better: the engine's best line from the position before, or the mate in one.",
    )
    reason: str | None = Field(
        None,
        description="Why it was a mistake, as in `loses the knight on f5`, if the rules or the engine's line show it.",
    )
    nodes: int | None = Field(
        None,
        description="Number of nodes of the engine's search from which `lost` comes; left out for other sources.",
    )


class MadeOut(Out):
    """How often players make a move if both have this rating."""

    rating: float = Field(description="In Elo points.")
    probability: float = Field(description="Probability of the move, 0 to 1.")


class PlayedOut(CostOut):
    """A move that was played: how human it was, and what it cost."""

    turn: Turn = Field(description="The side to move.")
    uci: str = Field(description="The move in UCI.")
    san: str = Field(description="The move in SAN.")
    probability: float | None = Field(
        None,
        description="Probability that the network gives the move, 0 to 1. Left out, as `rank` and `surprise`, if the "
        "network has no slot for the move: it is not judged.",
    )
    rank: int | None = Field(
        None,
        description="Place of the move among the legal moves; 1 is the network's first choice.",
    )
    surprise: float | None = Field(
        None, description="-log p, in nats, even where p underflows to 0; null on overflow."
    )
    value: ValueOut | None = Field(
        None, description="Forecast before the move; left out if the network gives none."
    )
    forecast: ValueOut | None = Field(None, description=FORECAST)
    leakage: LeakageOut = Field(description="What a wrong mask would have put on illegal moves.")
    phase: Phase = Field(description="Of the game, before the move.")
    at_ratings: Items[float] | None = Field(
        None,
        description="On request, of moves 7 to 36: the move's probability at each of the game's `ratings`, 0 to 1.",
    )


class NodeOut(Out):
    """A move of a game or of a variation. The first node of a tree stands for the start and has only a comment."""

    parent: int | None = Field(
        None, description="Number of the parent node, from 0; the first child is the main line."
    )
    uci: str | None = Field(None, description="The move in UCI.")
    san: str | None = Field(None, description="The move in SAN.")
    nags: Items[int] | None = Field(None, description="Glyphs, such as 4 for `??`.")
    before: str | None = Field(None, description="Comment before the first move of a variation.")
    comment: str | None = Field(None, description="Comment after the move.")


class SideOut(Out):
    """One side's moves."""

    moves: int = Field(description="Number of moves that the side made.")
    cross_entropy: float | None = Field(description="Mean surprise, in nats; null on overflow.")
    perplexity: float | None = Field(
        description="exp(cross_entropy): a number of moves; null on overflow."
    )
    top1: float = Field(description="Share of moves that were the network's first choice, 0 to 1.")
    raw_leakage: float | None = Field(
        description="Mean probability of illegal moves by softmax; null if not measured."
    )
    multiplied_leakage: float = Field(
        description="Mean probability of illegal moves by softmax(logits * mask). A constant added to all logits "
        "changes it."
    )
    accuracy: float | None = Field(
        description="Accuracy by lichess's formula, 0 to 100; null unless every move of the game has a cost."
    )


class MomentOut(Out):
    """A key move: one of the costliest mistakes and blunders, or without a cost, a fault by the rules.

    In a game without any, one of the costliest inaccuracies."""

    ply: int = Field(description="Number of the move in the game, in plies from 1.")
    mark: Mark | None = Field(description="The move's mark, as with the move; null without a cost.")
    lost: float | None = Field(
        description="What it cost, 0 to 1; null if only the rules tell that it is a fault."
    )
    text: str = Field(description="What it cost and who plays it, in words.")
    fen: str = Field(description="The position before the move.")
    by_rating: Items[MadeOut] | None = Field(
        None,
        description="How often players of each rating play it; left out for networks that take no ratings.",
    )


class ReadOut(Out):
    """A game as it was read."""

    headers: ByName[str] = Field(
        description="The PGN's tags, their values without escapes; `FEN` as it was read."
    )
    chess960: bool = Field(description="Whether it is a game of Chess960.")
    notes: Items[str] | None = Field(
        None,
        description="What was read otherwise than it stands in the PGN, or could not be read: castling rights, "
        "evaluations, moves that cannot be played. Left out if there is nothing to say.",
    )
    tree: Items[NodeOut] | None = Field(
        None, description="On request: moves, variations and comments, parents first."
    )


class GameOut(ReadOut):
    """A game."""

    ignored: Items[str] = Field(description="Inputs that this network cannot use, such as history.")
    elo: ByName[float] | None = Field(
        None, description="Ratings that the network used, by side, in Elo points."
    )
    clamped: bool | None = Field(
        None,
        description="True if a rating in the tags was outside the network's range; left out otherwise.",
    )
    white: SideOut | None = Field(description="White's moves; null if there are none.")
    black: SideOut | None = Field(description="Black's moves; null if there are none.")
    opening: Opening | None = Field(
        description="By the last position in lichess's list; null in Chess960, or from a FEN."
    )
    scores: Items[float | None] = Field(
        description="White's expected score, 0 to 1, in each position from the first to the last, by its end, its "
        "`[%eval]` or the engine; null where it is unknown."
    )
    moments: Items[MomentOut] = Field(description="Key moves, at most five, the costliest first.")
    summary: str | None = Field(
        description="Both sides' accuracy and the costliest move in words; null unless every move has a cost."
    )
    moves: Items[PlayedOut] = Field(description="The moves, in order.")
    ratings: Items[float] | None = Field(
        None,
        description="On request: the ratings of `at_ratings`, of both players alike, in Elo points.",
    )


class ProgressOut(Out):
    """How far the engine is."""

    done: int = Field(description="Number of positions that it has evaluated.")
    of: int = Field(
        description="Number of positions that it was to evaluate; it has failed if it ends with fewer."
    )
    deeper: int = Field(
        description="Number of positions that it has searched again, with more nodes, around a move near a mark."
    )
    of_deeper: int | None = Field(
        description="Number of positions that it was to search again; null before it is known."
    )


class GamesOut(Out):
    """Reports on the games of a PGN. As NDJSON, it is the first line, before the engine has evaluated anything."""

    model: ModelOut = Field(description="The network that was used.")
    temperature: float | None = Field(
        description="What the logits were divided by; null if no game could be judged."
    )
    games: Items[GameOut | ErrorOut] = Field(
        description="One for each game, in order, and an error for text in front of or between games."
    )
    engine: ProgressOut | None = Field(
        description="What the engine evaluated; null without `evaluations` in `include`, and where there is no engine."
    )


class EvaluatedOut(Out):
    """A line of NDJSON: a position that the engine has evaluated, and what it says about the moves around it."""

    game: int = Field(description="Number of the game in `games`, from 0.")
    position: int = Field(description="Number of plies before the position.")
    score: float = Field(description="White's expected score, 0 to 1.")
    costs: Items[CostOut] = Field(
        description="The move before and the move after it, as far as their costs are known. Later lines replace them."
    )
    engine: ProgressOut = Field(description="How far the engine is.")


class MomentsOut(Out):
    """A line of NDJSON: the key moves of a game, once the engine has evaluated it, and once it has searched deeper."""

    game: int = Field(description="Number of the game in `games`, from 0.")
    moments: Items[MomentOut] = Field(description="Key moves, at most five, the costliest first.")
    accuracy: ByName[float | None] = Field(
        description="Accuracy of `white` and `black` by lichess's formula, 0 to 100; null as in a report."
    )
    summary: str | None = Field(description="As in a report.")


class PartOut(Out):
    """A game of a PGN, or text outside games."""

    role: Literal["game", "outside", "trailing"] = Field(
        description="`game`; `outside` for text before or between games; `trailing` for text after the last game."
    )
    line: int = Field(description="Number of its first line in the PGN, from 1.")
    text: str = Field(description="All of it as written, with LF at the ends of lines.")
    tags: ByName[str] = Field(description="The game's tags, their values without escapes.")
    game: ReadOut | ErrorOut | None = Field(
        None, description="On request: the game as it was read, or why it cannot be read."
    )


class SplitOut(Out):
    """The parts of a PGN in order. Their texts together are the PGN."""

    parts: Items[PartOut] = Field(
        description="Games, and text outside games. A part's text alone is the same part."
    )


class FigureOut(Out):
    """One kind for one position."""

    leaked: float | None = Field(
        description="Probability of illegal moves, 0 to 1; null if it cannot be measured."
    )
    flipped: bool = Field(description="Whether the mistake would have changed the top move.")
    kl: float | None = Field(
        description="Divergence from the correct policy, in nats; null if infinite or unmeasured."
    )


class TopOut(Out):
    """The most probable move."""

    uci: str = Field(description="The move in UCI.")
    legal: bool = Field(description="Whether the move is legal.")


class PatternOut(Out):
    """A known mistake that the numbers resemble."""

    pattern: PatternName = Field(description="The mistake.")
    share: float = Field(description="Probability that the mistake accounts for.")
    detail: str = Field(description="What was found, for people.")


class JudgementOut(Out):
    """What leaks: how much, to which moves, and why they are illegal."""

    fen: str = Field(description=FEN)
    turn: Turn = Field(description="The side to move.")
    notation: Notation | None = Field(
        None, description="How `moves` were read; null without `moves`."
    )
    legal_moves: int = Field(description="Number of legal moves.")
    kinds: ByName[FigureOut] = Field(
        description="For logits, every kind; otherwise `given`, the illegal share."
    )
    sum: float | None = Field(description="Sum of the probabilities; null for logits.")
    top: TopOut = Field(description="The most probable move.")
    missing: Items[str] = Field(description="Legal moves with no probability at all, in UCI.")
    causes: ByName[float] = Field(description="The whole illegal share by cause, as probabilities.")
    illegal: Items[IllegalMoveOut] = Field(
        description="Most probable first, at most `limit`; named by slot."
    )
    patterns: Items[PatternOut] = Field(description="Known mistakes that the numbers resemble.")
