"""One FastAPI route with a body, and nothing behind it: `uvicorn benchmarks.peers.bare_route:app`."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    fen: str


app = FastAPI()


@app.post("/v1/policy")
async def policy(body: Body) -> dict[str, str]:
    return {"fen": body.fen}
