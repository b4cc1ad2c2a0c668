"""A plain FastAPI handler: `uvicorn benchmarks.peers.fastapi_server:app`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.network import Network


class Body(BaseModel):
    fen: str


app = FastAPI()
network = Network()


@app.post("/policy")
def policy(body: Body) -> dict[str, Any]:
    return network.answers([body.fen])[0]
