"""The command line: `movemask …`."""
