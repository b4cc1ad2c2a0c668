"""Clients that want the engine to themselves, or the search for mates."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Iterator

import chess
import chess.pgn

from benchmarks.hostile.clients import service
from benchmarks.hostile.trial import Trial

#: Every move allows mate in one, and there are many to try.
CONTRIVED = '[FEN "B2Rq3/q1N2N1k/2q2B1q/Rq1R4/2Nq2qn/5r1R/B1K5/q1QRN1n1 w - - 0 1"]\n\n1. d8e8 *\n\n'


def random_games(plies: int) -> str:
    """Games of random moves with this number of plies in all."""
    draws, games = random.Random(1), []
    while plies > 0:
        board = chess.Board()
        while plies > 0 and board.ply() < 120 and not board.is_game_over():
            board.push(draws.choice(list(board.legal_moves)))
            plies -= 1
        games.append(str(chess.pgn.Game.from_board(board)))
    return "\n\n".join(games)


def review(port: int, address: str, pgn: str, accept: str = "application/json") -> http.client.HTTPConnection:
    """A connection that has asked for a review with evaluations."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120, source_address=(address, 0))
    body = json.dumps({"pgn": pgn, "include": ["evaluations"]})
    headers = {"Host": "localhost", "Content-Type": "application/json", "Accept": accept}
    connection.request("POST", "/v1/games", body, headers)
    return connection


def filled_engine(program: str) -> Iterator[Trial]:
    """Reviews beside three clients with as many moves as a request takes."""
    with service(engine=program, workers="1") as server:
        greedy = [
            review(server.port, f"127.0.9.{number}", random_games(1016), "application/x-ndjson") for number in (2, 3, 4)
        ]
        for connection in greedy:
            connection.getresponse().readline()  # the network's report; now the engine is at work
        results, passed = [], True
        for _ in range(3):
            start = time.monotonic()
            response = review(server.port, "127.0.9.9", random_games(60)).getresponse()
            engine = json.loads(response.read())["engine"]
            seconds = time.monotonic() - start
            results.append(f"{response.status} with {engine['done']} of {engine['of']} in {seconds:.1f} s")
            passed = passed and response.status == 200 and engine["done"] == engine["of"]
        for connection in greedy:
            connection.close()
        done = "reviews of 60 moves beside three clients with 1,016 moves each"
        yield Trial(done, "200, with every evaluation", "; ".join(results), passed)


def mate_search() -> Iterator[Trial]:
    """A client that sends positions in which the search for mates takes longest, and leaves."""
    with service(workers="1", engine="") as server:
        connection = review(server.port, "127.0.9.2", CONTRIVED * 300)
        connection.getresponse().read()
        whole = server.cpu_seconds
        for number in range(5):
            review(server.port, f"127.0.9.{number + 3}", CONTRIVED * 300).close()
        time.sleep(1)
        left = server.cpu_seconds
        time.sleep(5)
        after = server.cpu_seconds - left
        result = f"{whole:.2f} s of CPU for 300 games; {after:.2f} s from 1 s after five clients had left"
        yield Trial("300 games with long searches for mates", "work ends with its client", result, after < 0.5)
