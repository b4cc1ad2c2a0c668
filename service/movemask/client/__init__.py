"""The Python API: networks in this process, and clients of a service."""
