"""One FastAPI route with a body, and nothing behind it: `uvicorn benchmarks.peers.bare_route:app`."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel


class Asked(BaseModel):
    fen: str


app = FastAPI()


@app.post("/v1/policy")
async def policy(asked: Asked) -> dict[str, str]:
    return {"fen": asked.fen}
