"""A UCI engine for tests: `uci_engine.py HOW`. It says that every position is even.

HOW is `well`; `silent`: it does not even greet; `dies`: it ends at the second position.
"""

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


how, positions = sys.argv[1], 0
for line in sys.stdin:
    word = line.split()[0]
    if how == "silent":
        continue
    if word == "uci":
        say("id name test\noption name Hash type spin default 1 min 1 max 64\nuciok")
    elif word == "isready":
        say("readyok")
    elif word == "go":
        positions += 1
        if positions == 2 and how == "dies":
            sys.exit(3)
        say("info depth 1 score cp 0\nbestmove 0000")
