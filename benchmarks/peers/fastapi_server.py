"""A plain FastAPI handler: `uvicorn benchmarks.peers.fastapi_server:app`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.network import Network


class Asked(BaseModel):
    fen: str


app = FastAPI()
network = Network()


@app.post("/policy")
def policy(asked: Asked) -> dict[str, Any]:
    return network.answers([asked.fen])[0]
