"""What everybody would lose: their turn, when a thousand others come at once, or come again though refused."""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from movemask.api.turns import Turns, new_event_loop, turns_of

if not hasattr(select, "epoll"):
    pytest.skip("this system has no epoll: the event loop is asyncio's own", allow_module_level=True)


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(300)]
        for pair in made:
            for one in pair:
                stack.enter_context(one)
        yield made


def ready(turns: Turns) -> list[int]:
    return [key.fd for key, _ in turns.select(0)]


def test_a_round_is_short_and_everyone_gets_a_turn(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    turns = Turns()
    for near, far in pairs:
        turns.register(near, selectors.EVENT_READ)
        far.send(b"x")
    seen: set[int] = set()
    for _ in range(20):
        found = ready(turns)
        assert len(found) <= 64
        seen.update(found)
    assert len(seen) == len(pairs)
    turns.close()


def test_who_comes_again_after_a_refusal_waits_behind_the_others(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    turns = Turns()
    for near, far in pairs:
        turns.register(near, selectors.EVENT_READ)
        far.send(b"x")
    refused = [near.fileno() for near, _ in pairs[:280]]
    for descriptor in refused:
        turns.refused(descriptor)
    for _ in range(20):
        found = ready(turns)
        others = {near.fileno() for near, _ in pairs[280:]}
        assert others <= set(found)  # each time, all of them
        assert 0 < len(set(found) & set(refused)) <= 32
    turns.taken(refused[0])
    assert refused[0] in ready(turns)
    for near, _ in pairs:  # whether they were refused or not
        turns.unregister(near)
    assert ready(turns) == []
    turns.close()


def test_a_number_that_is_used_again_is_watched(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    turns = Turns()
    near, far = pairs[0]
    turns.register(near, selectors.EVENT_READ)
    turns.refused(near.fileno())
    turns.modify(near, selectors.EVENT_READ | selectors.EVENT_WRITE)
    assert [mask for _, mask in turns.select(0)] == [selectors.EVENT_WRITE]
    turns.unregister(near)
    turns.register(near, selectors.EVENT_READ)  # the connection that got the number next
    turns.taken(near.fileno())
    far.send(b"x")
    assert ready(turns) == [near.fileno()]
    with pytest.raises(KeyError):
        turns.register(near, selectors.EVENT_READ)
    turns.close()


def test_an_event_loop_runs_on_it() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(10))
        writer.close()
        await writer.wait_closed()

    async def main() -> list[bytes]:
        assert turns_of(asyncio.get_running_loop()) is not None
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        answers = await asyncio.gather(*(ask() for _ in range(200)), asyncio.to_thread(lambda: b"hello"))
        server.close()
        await server.wait_closed()
        return answers

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(main()) == [b"hello"] * 201
