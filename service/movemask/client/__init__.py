"""movemask from Python: networks in this process, and clients of a service elsewhere."""
