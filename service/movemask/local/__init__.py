"""`movemask.load()`: a network in this process, without HTTP."""
