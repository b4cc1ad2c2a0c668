"""Version 2: cells by span of time and group replace the totals and sketches; more columns for single positions.

The counts of version 1 stay, as figures of all time. Version 1 came before alembic: a database of it has tables and no
revision. Newer tables are made by `store.schema`, not by migrations.
"""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from alembic import op

from movemask.store.sketch import Sketch

revision = "2"
down_revision = None

_OLD_ZERO_BUCKET = -(2**31)
_NEW_ZERO_BUCKET = -(2**15)


def upgrade() -> None:
    """Creates the cells, copies the totals into them, and drops the tables of the totals."""
    cell = op.create_table(
        "cell",
        sa.Column("model", sa.Integer, sa.ForeignKey("model.id"), primary_key=True),
        sa.Column("tier", sa.Integer, primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True),
        sa.Column("dimension", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("group", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("unmeasured", sa.BigInteger, nullable=False),
        sa.Column("flips", sa.BigInteger, nullable=False),
        sa.Column("infinite", sa.BigInteger, nullable=False),
        sa.Column("sum", sa.Double, nullable=False),
        sa.Column("max", sa.Double, nullable=False),
        sa.Column("kl", sa.Double, nullable=False),
        sa.Column("sketch", sa.LargeBinary, nullable=False),
    )
    connection = op.get_bind()
    totals = connection.execute(sa.text("SELECT model, kind, count, unmeasured, sum, max FROM total")).all()
    for model, kind, count, unmeasured, summed, highest in totals:
        buckets = connection.execute(
            sa.text("SELECT bucket, count FROM sketch WHERE model = :model AND kind = :kind ORDER BY bucket"),
            {"model": model, "kind": kind},
        ).all()
        values = {"count": count, "unmeasured": unmeasured, "sum": summed, "max": highest}
        place = {"model": model, "tier": 0, "start": 0, "dimension": "all", "kind": kind, "group": ""}
        rest = {"flips": 0, "infinite": 0, "kl": 0.0, "sketch": _sketch([tuple(row) for row in buckets])}
        connection.execute(sa.insert(cell), [{**place, **values, **rest}])
    for table in ("total", "sketch", "schema_version"):
        op.drop_table(table)
    for table in ("position", "worst"):
        op.add_column(table, sa.Column("in_check", sa.Boolean))
        op.add_column(table, sa.Column("phase", sa.Text))
        op.add_column(table, sa.Column("elo", sa.Double))
        op.add_column(table, sa.Column("figures", sa.Text))
        op.add_column(table, sa.Column("causes", sa.Text))


def _sketch(rows: list[tuple[int, int]]) -> bytes:
    buckets = [_NEW_ZERO_BUCKET if bucket == _OLD_ZERO_BUCKET else bucket for bucket, _ in rows]
    return Sketch(np.array(buckets, dtype=np.int16), np.array([n for _, n in rows], dtype=np.int64)).to_bytes()
