"""BentoML, with its batching: `bentoml serve benchmarks.peers.bentoml_server:Policy`.

It takes a list of FENs a call.
"""

from typing import Any

import bentoml

from benchmarks.peers.network import Network


@bentoml.service(traffic={"timeout": 60})
class Policy:
    def __init__(self) -> None:
        self.network = Network()

    @bentoml.api(route="/policy", batchable=True, max_batch_size=32, max_latency_ms=1000)
    def policy(self, fens: list[str]) -> list[dict[str, Any]]:
        return self.network.answers(fens)
