"""Other projects' weight files → ONNX and contract."""
