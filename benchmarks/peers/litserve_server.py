"""LitServe, with its batching: `python -m benchmarks.peers.litserve_server PORT`."""

import sys
from typing import Any

import litserve
from pydantic import BaseModel

from benchmarks.peers.network import Network


class Body(BaseModel):
    fen: str


class Policy(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.network = Network()

    def decode_request(self, request: Body) -> str:
        return request.fen

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: list[str]) -> list[dict[str, Any]]:
        return self.network.answers(x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Any:
        return output


if __name__ == "__main__":
    api = Policy(max_batch_size=32, batch_timeout=0.002, api_path="/policy")
    litserve.LitServer(api, accelerator="cpu").run(port=int(sys.argv[1]), host="127.0.0.1", generate_client_file=False)
