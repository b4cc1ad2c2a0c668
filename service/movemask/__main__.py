"""`python -m movemask` is `movemask`."""

from movemask.cli.main import main

main()
