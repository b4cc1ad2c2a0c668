"""The command line, `movemask …`."""
