"""No page reads a table that grows with traffic without a bound: every recorded query is explained and its plan walked.

A scan of such a table is bounded by the tenant and, through an index that leads to it, by a time it does not begin
before, by a key of what it belongs to, or by a LIMIT that the index's own order serves. Not here: jobs, of which done
ones go after two days, and the audit trail, which grows with what is decided.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from feedback.services.rollups import count_all_dirty
from registry.models import PriceCard
from registry.services import audit
from registry.tenancy import tenant
from tests.conftest import undone
from tests.console import factories
from tests.console.test_access import TABLE, call, facts  # noqa: F401 - a fixture

BIG = {
    "feedback_agentsession", "feedback_turn", "feedback_turnpayload", "feedback_usersignal", "feedback_label",
    "feedback_ledgeritem", "feedback_flag", "feedback_reviewresponse", "feedback_outcomecount", "feedback_dirtyhour",
    "feedback_turnrollup", "feedback_userrollup", "feedback_signalrollup", "feedback_latencyrollup",
    "feedback_busyrollup", "evals_score", "evals_comparison", "evals_judgecall", "rl_online_batchsample",
    "rl_online_updatemetric", "rl_online_alarm", "rl_online_samplehashes", "rl_online_overlap",
}  # fmt: skip
TIMES = {
    "at", "hour", "received_at", "settled_at", "created_at", "resolved_at", "first_at", "last_at", "opened_at",
    "finished_at", "run_at",
}  # fmt: skip
KEYS = {
    "id", "turn_id", "turn_ref", "session_id", "session_ref", "signal_id", "item_id", "label_id", "flag_id", "run_id",
    "batch_id", "problem_id", "comparison_id", "rating_id", "anchor_run_id",
}  # fmt: skip
STREAMS = {"overview-live", "update-live", "eval-run-live", "export"}  # answer on and on; their reads are the pages'
EQUAL = re.compile(r"(?:\w+\.)?\"?(\w+)\"?\)?(?:::[\w ]+)? = ")
EQUALS = re.compile(r" = \(?(?:\w+\.)\"?(\w+)\"?\)")  # of the other side of a join
NOT_BEFORE = re.compile(r"(?:\w+\.)?\"?(\w+)\"? >=? ")
# What must have read all that is below it before it gives its first row; an incremental sort reads on as it is asked.
BLOCKING = ("Sort", "Aggregate", "WindowAgg", "Hash", "Unique", "SetOp", "Materialize")


@dataclass(frozen=True)
class Scan:
    """One table's place in a plan."""

    table: str
    conditions: str  # all that a row must meet, joins included
    is_limited: bool  # read in the order of an index until a LIMIT is reached
    equal: set[str] = field(default_factory=set)  # columns that are given

    @property
    def fault(self) -> str | None:
        if "project_id" not in self.equal:
            return "no tenant"
        if self.is_limited:
            return None
        begun = set(NOT_BEFORE.findall(self.conditions))
        bounds = (KEYS & self.equal) | (TIMES & (begun | self.equal))
        if any(_leads(index, column, self.equal) for index in _indexes(self.table) for column in bounds):
            return None
        return "neither a time, nor a key, nor a limit that an index serves"


def _leads(index: tuple[str, ...], column: str, equal: set[str]) -> bool:
    """Whether the index goes to `column` over nothing but what is given."""
    return column in index and all(before in equal for before in index[: index.index(column)])


@cache
def _indexes(table: str) -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT array(SELECT attname::text FROM unnest(i.indkey) WITH ORDINALITY AS key(number, place)
                         LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = key.number ORDER BY place)
            FROM pg_index i WHERE i.indrelid = %s::regclass
            """,
            [table],
        )
        return [tuple(row[0]) for row in cursor.fetchall()]


def scans(node: dict[str, Any], above: tuple[dict[str, Any], ...] = ()) -> Iterator[Scan]:
    table = re.sub(r"_y?\d{4}_?m?\d{2}$|_default$", "", node.get("Relation Name", ""))
    if table in BIG:
        alias = node["Alias"]
        own = " ".join(str(node.get(name, "")) for name in ("Index Cond", "Recheck Cond", "Filter"))
        joins = [
            part
            for parent in above
            for name in ("Hash Cond", "Merge Cond", "Join Filter")
            for part in parent.get(name, "").split(" AND ")
            if f"{alias}." in part
        ]
        conditions = " ".join([own, *joins])
        equal = set(EQUAL.findall(conditions)) | set(EQUALS.findall(" ".join(joins)))
        yield Scan(table=table, conditions=conditions, is_limited=_is_limited(node, above), equal=equal)
    for child in node.get("Plans", ()):
        yield from scans(child, (*above, node))


def _is_limited(node: dict[str, Any], above: tuple[dict[str, Any], ...]) -> bool:
    if not node["Node Type"].startswith(("Index Scan", "Index Only Scan")):
        return False
    for parent in reversed(above):
        if parent["Node Type"] == "Limit":
            return True
        if parent["Node Type"] in BLOCKING:
            return False
    return False


def plans(sql: str) -> Iterator[dict[str, Any]]:
    """Its plans, were the tables as large as they may become: by index, joined row by row; without a sort if there is
    such a one, or with the sort of what an index leads to. Which of the two is cheaper hangs on how few rows there are
    now."""
    for is_sorting in ("off", "on"):
        with connection.cursor() as cursor:
            for way in ("seqscan", "hashjoin", "mergejoin", "bitmapscan", "material"):
                cursor.execute(f"SET LOCAL enable_{way} = off")
            cursor.execute(f"SET LOCAL enable_sort = {is_sorting}")
            cursor.execute("EXPLAIN (FORMAT JSON, VERBOSE) " + sql.replace("%", "%%"), [])
            plan = cursor.fetchone()[0]
        yield (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]


def faults(sql: str) -> list[Scan]:
    """Of the plan that has fewest."""
    return min(([scan for scan in scans(plan) if scan.fault] for plan in plans(sql)), key=len)


def unbounded(project, queries) -> list[str]:
    """What is wrong with the reads among recorded queries."""
    found = []
    with tenant(project.id):
        for sql in dict.fromkeys(query["sql"] for query in queries):
            if not sql.lstrip().upper().startswith(("SELECT", "WITH")) or not any(name in sql for name in BIG):
                continue
            for scan in faults(sql):
                found.append(f"{scan.table}: {scan.fault}: {scan.conditions}\n    {' '.join(sql.split())[:600]}")
    return found


PAGES = [name for name, row in TABLE.items() if row.post is None and name not in STREAMS]


def test_every_read_of_a_page_is_bounded(as_owner, facts, project):  # noqa: F811
    wrong = {}
    for name in PAGES:
        with undone():
            call(as_owner, name, facts)  # the first page of a session also remembers its project
            with CaptureQueriesContext(connection) as queries:
                assert call(as_owner, name, facts).status_code < 500
            wrong[name] = unbounded(project, queries.captured_queries)
    assert {name: found for name, found in wrong.items() if found} == {}


def fill(policy, start: int, rows: int) -> None:
    """So many of everything that Overview and Alerts speak of."""
    first = factories.Checkpoint.objects.get(policy=policy, version=1)
    for i in range(start, start + rows):
        turn = factories.make_turn(f"s{i}", user=f"u-{i}", version=1)
        factories.make_flag(turn)
        checkpoint = factories.make_checkpoint(policy, i + 2, first, state="retired")
        batch = factories.make_batch(policy, [turn])
        factories.make_update(
            policy, batch, parent=first, version=i + 2, checkpoint=checkpoint, state="promoted", steps=1
        )
        factories.make_alarm(policy.project, policy=f"other-{i}")
        factories.EngineHolding.objects.create(engine=f"e{i}", checkpoint=first, tree_digest=first.tree_digest)
        audit("promote", "checkpoint", checkpoint, actor="strop", after={"serving": str(checkpoint)})
        PriceCard.objects.create(model=f"m-{i}", valid_from=timezone.now(), input_usd=1)
    count_all_dirty(policy.project_id)


def test_a_page_asks_the_same_number_of_questions_at_1_and_100_rows(as_owner, project):
    names = ("overview", "alerts", "update-trigger", "update-next")
    asked: dict[str, list[list[str]]] = {name: [] for name in names}
    with tenant(project.id):
        policy = factories.make_policy()
    for start, rows in ((0, 1), (1, 99)):
        with tenant(project.id):
            fill(policy, start, rows)
        for name in names:
            as_owner.get(reverse(f"console:{name}", args=["editor"]))
            with CaptureQueriesContext(connection) as queries:
                response = as_owner.get(reverse(f"console:{name}", args=["editor"]))
            assert response.status_code == 200
            asked[name].append([query["sql"][:90] for query in queries])
    for name, (at_one, at_hundred) in asked.items():
        assert len(at_one) == len(at_hundred), (name, at_hundred)
