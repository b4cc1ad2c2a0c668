"""`python -m tests.client.forking KIND URL`: a program that forks after it has asked a service.

Servers with preloading do so, and multiprocessing. Parent and children ask at the same time, and each compares its
answers with its questions.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable

import pytest

import movemask

CHILDREN, QUESTIONS = 4, 40


def fen(number: int) -> str:
    """A position that tells its number again: the fullmove counter."""
    return f"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 {number}"


def forked(ask: Callable[[int], None]) -> None:
    """Runs `ask` in this process and in children at once; raises for a child that failed."""
    children = []
    for child in range(1, CHILDREN + 1):
        if not (pid := os.fork()):
            status = 1
            try:
                ask(1_000 * child)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    ask(1)
    failures = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert failures == [0] * CHILDREN


def blocking(url: str) -> None:
    client = movemask.Client(url)

    def ask(first: int) -> None:
        for number in range(first, first + QUESTIONS):
            assert client.policy(fen(number)).fen == fen(number)

    ask(1)
    forked(ask)
    client.close()


def threads(url: str) -> None:
    """A child with threads that share the client."""
    client = movemask.Client(url)
    client.models()
    faults: list[BaseException] = []

    def ask(first: int) -> None:
        for number in range(first, first + 10):
            try:
                assert client.policy(fen(number)).fen == fen(number)
            except BaseException as error:
                faults.append(error)

    def ask_in_threads(first: int) -> None:
        started = [threading.Thread(target=ask, args=(first + 100 * number,)) for number in range(4)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        assert not faults, faults

    forked(ask_in_threads)


def asynchronous(url: str) -> None:
    client = movemask.AsyncClient(url)

    async def ask_all(first: int) -> None:
        async def ask_one(number: int) -> None:
            assert (await client.policy(fen(number))).fen == fen(number)

        await asyncio.gather(*map(ask_one, range(first, first + QUESTIONS)))

    def ask(first: int) -> None:
        asyncio.run(ask_all(first))

    ask(1)
    forked(ask)


def pool(url: str) -> None:
    """A client that workers of multiprocessing inherit."""
    global _inherited
    _inherited = movemask.Client(url)
    _inherited.models()
    with multiprocessing.get_context("fork").Pool(CHILDREN) as workers:
        fens = [fen(number) for number in range(1, 1 + CHILDREN * QUESTIONS)]
        assert workers.map(_answered, fens, chunksize=5) == fens


def _answered(question: str) -> str:
    return _inherited.policy(question).fen


def stream(url: str) -> None:
    """Results that were begun in the parent: a child that goes on with them is told, and the parent gets them all."""
    client = movemask.Client(url)
    results = client.policies(map(fen, range(1, 201)))
    next(results)
    if not (child := os.fork()):
        status = 1
        try:
            list(results)
        except movemask.ServiceUnreachable as error:
            status = "the process was forked while this was read" not in str(error)
        finally:
            os._exit(status)
    assert [getattr(result, "fen", None) for result in results] == list(map(fen, range(2, 201)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def given(url: str) -> None:
    """A client of httpx2 that was given cannot be opened anew: the child is told."""
    import httpx2

    client = movemask.Client(http=httpx2.AsyncClient(base_url=url))
    client.models()

    def ask(first: int) -> None:
        if first == 1:
            client.models()
            return
        with pytest.raises(movemask.MovemaskError, match=r"^http: was made before this process was forked"):
            client.models()

    forked(ask)


KINDS = {kind.__name__: kind for kind in (blocking, threads, asynchronous, pool, stream, given)}

_inherited: movemask.Client

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2])
