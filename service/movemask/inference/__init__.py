"""Networks: the session protocol, onnxruntime sessions, contracts, the registry and the batcher."""
