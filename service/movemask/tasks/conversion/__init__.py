"""Converts other projects' weight files to ONNX, with a contract."""
