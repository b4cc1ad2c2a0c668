"""A UCI engine for tests: `uci_engine.py HOW`. It says that every position is even.

HOW is `well`, without Chess960; `silent`: it does not even greet; `dies`: it ends at the second position; `moves`: its
best line is the first legal move, and the reply's.
"""

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def line_from(command: str, chess960: bool) -> str:
    """The best line in the position of a UCI command."""
    import chess

    fen, _, moves = command.partition(" moves ")
    fen = fen.removeprefix("position fen ").replace("position startpos", chess.STARTING_FEN).strip()
    board = chess.Board(fen, chess960=chess960)
    for move in moves.split():
        board.push_uci(move)
    line: list[str] = []
    while len(line) < 2 and board.legal_moves:
        line.append(min(move.uci() for move in board.legal_moves))
        board.push_uci(line[-1])
    return f" pv {' '.join(line)}"


how, positions, place, chess960 = sys.argv[1], 0, "", False
for line in sys.stdin:
    word = line.split()[0]
    if how == "silent":
        continue
    if word == "uci":
        say("id name test\noption name Hash type spin default 1 min 1 max 64")
        if how != "well":
            say("option name UCI_Chess960 type check default false")
        say("uciok")
    elif word == "setoption" and "UCI_Chess960" in line:
        chess960 = line.split()[-1] == "true"
    elif word == "isready":
        say("readyok")
    elif word == "go":
        positions += 1
        if positions == 2 and how == "dies":
            sys.exit(3)
        say(f"info depth 1 score cp 0{line_from(place, chess960) if how == 'moves' else ''}\nbestmove 0000")
    elif word == "position":
        place = line
