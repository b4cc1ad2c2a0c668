"""`movemask reload`."""

from __future__ import annotations

import os
import signal
import time

import click

from movemask.server.process.reloads import Reload, read_reloads
from movemask.server.process.running_services import RunningService, running_services

#: Seconds between two looks at how a reload stands.
_POLL_SECONDS = 0.1


@click.command(short_help="Have the running service read its files again.")
@click.argument("service", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Longest time to wait for the outcome.",
)
@click.option("--no-wait", is_flag=True, help="Return at once. The log tells the outcome.")
def reload(service: str | None, timeout: float, no_wait: bool) -> None:
    """Have the running service read its models, API keys and TLS certificate again.

    Its workers are replaced one after the other. If a file has a fault, they stay as they are, and the command exits
    with 1 and says why. It finds services of the same user on this machine, or in this container. SERVICE names one of
    several by its address, as the log shows it, or by its process id. The command sends SIGHUP.
    """
    running = _service(service)
    last = max((reload.reload for reload in read_reloads(running.folder)), default=0)
    os.kill(running.pid, signal.SIGHUP)
    if no_wait:
        click.echo(f"the service on {running.address} reloads; its log tells the outcome", err=True)
        return
    outcome = _outcome(running, last, timeout)
    if outcome is None:
        raise click.ClickException(
            f"the service on {running.address} has not told in {timeout:g} s how its reload stands; see its log"
        )
    reason = f": {outcome.reason}" if outcome.reason else ""
    if outcome.outcome == "reloading":
        workers = f"{outcome.outdated} worker{'' if outcome.outdated == 1 else 's'}"
        raise click.ClickException(
            f"not reloaded in {timeout:g} s, {workers} left; the service goes on with it{reason}"
        )
    if outcome.outcome == "refused":
        raise click.ClickException(f"not reloaded{reason}")
    click.echo(f"the service on {running.address} is reloaded", err=True)


def _service(name: str | None) -> RunningService:
    """Returns the running service with an address or process id, or the only one."""
    running = running_services()
    matching = [one for one in running if name in (None, one.address, str(one.pid))]
    if len(matching) == 1:
        return matching[0]
    services = "; ".join(f"{one.address} (process {one.pid})" for one in matching or running)
    fault = "name one of the services" if matching else "no service runs here"
    if name is not None and not matching:
        fault += f" on {name}" if not name.isdecimal() else f" as process {name}"
    away = ", of this user and with this TMPDIR; for one that systemd runs: systemctl reload"
    raise click.ClickException(f"{fault}: {services}" if services else f"{fault}{away}")


def _outcome(running: RunningService, last: int, timeout: float) -> Reload | None:
    """Waits for the outcome of the first reload after number `last` that is not superseded.

    Returns it as it stands after `timeout` seconds; None if there is none yet.
    """
    end = time.monotonic() + timeout
    while True:
        later = [reload for reload in read_reloads(running.folder) if reload.reload > last]
        reload = next((one for one in later if one.outcome != "superseded"), None)
        if time.monotonic() >= end or (reload is not None and reload.outcome != "reloading"):
            return reload
        if running not in running_services():
            raise click.ClickException(f"the service on {running.address} has ended")
        time.sleep(_POLL_SECONDS)
