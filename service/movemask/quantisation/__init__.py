"""A network as 8-bit integers: calibrated on real positions, judged against the original, and kept if it is as good."""

import movemask.network.onnx  # noqa: F401  turns onnxruntime's telemetry off before its quantiser is imported
