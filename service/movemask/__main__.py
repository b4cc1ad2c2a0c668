"""The command `movemask`, which is `python -m movemask` too."""

import sys


def main() -> None:
    """Runs the command. Ctrl-C while its modules are still being imported ends it as quietly as any later one."""
    try:
        from movemask.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(130)  # 128 and SIGINT, as shells have it
    command()


if __name__ == "__main__":
    main()
