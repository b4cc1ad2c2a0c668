"""Imported first by the process that workers are forked from: blocks SIGTERM, SIGINT and SIGHUP there.

systemd and terminals signal every process of a service at once. The supervisor needs this process until the workers
have ended. Each worker begins with these signals blocked, and receives pending ones when it unblocks them
(`exit_at_once`).
"""

from movemask.server.signals import block

block()
