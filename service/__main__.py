"""`python -m service` is `movemask`."""

from service.cli import main

main()
