"""`movemask reload`."""

from __future__ import annotations

import os
import signal

import click

from movemask.errors import SettingsError
from movemask.server.process.running_services import running_services


@click.command(short_help="Have the running service read its files again.")
@click.argument("address", required=False)
def reload(address: str | None) -> None:
    """Have the running service read its models, API keys and TLS certificate again.

    Its workers are replaced one after the other. If a file has a fault, they stay as they are; the log of the service
    and the metric movemask_last_reload_successful say so. The command finds services of the same user on this machine,
    or in this container. ADDRESS, as the log shows it, names one of several. It sends SIGHUP.
    """
    found = [one for one in running_services() if address is None or one.address == address]
    if len(found) != 1:
        shown = "; ".join(
            f"{one.address} (process {one.pid})" for one in found or running_services()
        )
        fault = (
            "name one of the services"
            if found
            else "no service runs here" + (f" on {address}" if address else "")
        )
        away = ", of this user and with this TMPDIR; for one that systemd runs: systemctl reload"
        raise SettingsError(f"{fault}{f': {shown}' if shown else away}")
    os.kill(found[0].pid, signal.SIGHUP)
    click.echo(
        f"the service on {found[0].address} reloads; its log says when it has, or why it has not",
        err=True,
    )
