"""The move distribution of a position at three ratings, in this process or from a service.

python examples/policy.py                          # the network in this process
python examples/policy.py http://127.0.0.1:8000    # a service; pip install 'movemask[client]'
"""

from __future__ import annotations

import sys

import chess

import movemask

RATINGS = (1100, 1500, 1900)

board = chess.Board()
for san in ("e4", "e5", "Nf3", "Nc6", "Bc4"):
    board.push_san(san)
print(board)

if len(sys.argv) > 1:
    with movemask.Client(sys.argv[1]) as client:
        answer = client.sweep(board, ratings=RATINGS, include=["san"])
        lines = [(move.san, move.probabilities) for move in answer.moves[:5]]
else:
    network = movemask.load()
    policies = [network.policy(board, elo=rating) for rating in RATINGS]
    moves = sorted(board.legal_moves, key=lambda move: -sum(policy[move] for policy in policies))
    lines = [(board.san(move), [policy[move] for policy in policies]) for move in moves[:5]]

print("\nmove  " + "".join(f"{rating:>9}" for rating in RATINGS))
for san, probabilities in lines:
    print(f"{san:<6}" + "".join(f"{probability:9.1%}" for probability in probabilities))
