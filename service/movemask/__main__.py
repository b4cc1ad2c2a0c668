"""The command `movemask`, which is `python -m movemask` too."""

import sys


def main() -> None:
    """Runs the command. A stop while its modules are still being imported ends it as quietly as any later stop."""
    if sys.argv[1:2] == ["serve"]:
        from movemask.server.process.signals import exit_at_once

        exit_at_once()
    try:
        from movemask.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(130)  # 128 and SIGINT, as shells have it
    command(prog_name="movemask")


if __name__ == "__main__":
    main()
