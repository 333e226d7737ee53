"""Who belongs to what was named, by what the kernel is made to say here; tests/cli does it with real cgroups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core.model import Client, Daemon, ProcessKey, Server
from mpstui.core.where import Cgroup, Where
from mpstui.operations import selectors
from mpstui.operations.check import Refused
from mpstui.operations.selectors import Selection, is_named, left, pids_in, select
from mpstui.operations.types import ExitStatus

WRITTEN = 1000.0
JOB, POD = Where(batch="slurm", job="7"), Where(pod_uid="u", pod="train-0", namespace="ml", container_name="main")


def client(pid: int, **fields: object) -> Client:
    return replace(Client(ProcessKey(pid, 1)), **fields)


def of(*clients: Client, **fields: object) -> Daemon:
    return Daemon(Path("/p"), servers=(Server(ProcessKey(634, 1), clients=clients),), **fields)


@pytest.mark.parametrize(
    ("paths", "name", "within"),
    [
        (("/job_1",), "/job_1", True),
        (("/job_1/step_0",), "/job_1", True),
        (("/job_10",), "/job_1", False),
        (("/",), "/job_1", False),
        (("/x/job_1",), "/job_1", False),
        (("/", "/job_1/a"), "/job_1", True),  # one hierarchy of version 1 is enough
        ((), "/job_1", False),
        (("/",), "/", True),
        (("/a", "/b"), "/", True),
        (("/a", "/../b"), "/", False),  # outside of this container
        ((), "/", False),
    ],
)
def test_a_cgroup_has_what_is_below_it_and_not_what_begins_alike(
    monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...], name: str, within: bool
) -> None:
    asked: list[str] = []

    def cgroups(process: str) -> tuple[Cgroup, ...]:
        asked.append(process)
        return tuple(Cgroup("", path) for path in paths)

    monkeypatch.setattr(selectors, "_cgroups", cgroups)
    # It is asked of the kernel also where a simulated client is said to be somewhere.
    made, here, away = client(7, where=JOB), client(8, local=False, pid_here=9), client(9, local=False)
    for simulated in (False, True):
        daemon = of(made, here, away, simulated=simulated)
        assert [each.pid for each in Selection(f"cgroup:{name}").clients(daemon)] == [7, 8] * within
    assert set(asked) == {"7", "9"}
    assert (left(f"cgroup:{name}", made, False) is None) is within


@pytest.mark.parametrize(
    ("written", "began", "meant"),
    [
        (WRITTEN, WRITTEN, True),
        (WRITTEN, WRITTEN + 60.0, True),  # the clocks of a file system's machine and of this one
        (WRITTEN, WRITTEN + 60.1, False),
        (WRITTEN, None, True),
        (None, WRITTEN * 2, True),
    ],
)
def test_who_began_after_the_file_was_written_was_not_meant(
    written: float | None, began: float | None, meant: bool
) -> None:
    daemon = of(client(7, start_time=began), client(8, start_time=0.0))
    chosen = Selection("pid_file:/x", frozenset({7}), written)
    assert [each.pid for each in chosen.clients(daemon)] == [7] * meant
    assert [each.pid for each in chosen.reused(daemon)] == [7] * (not meant)


def test_a_number_of_a_file_is_one_of_this_pid_namespace() -> None:
    """A client in a container has the same number there as somebody else here: its work was ended for the file's."""
    daemon = of(
        client(7, local=False),
        client(8, local=False, pid_here=9),
        client(1, local=False, pid_here=os.getpid()),
    )
    chosen = Selection("pid_file:/x", frozenset({7, 8, os.getpid()}), WRITTEN)
    assert chosen.clients(daemon) == []
    assert [each.pid for each in chosen.reused(daemon)] == [1], "which began after 1970"
    assert chosen.unknown(daemon)[0] == 1
    assert [each.pid for each in Selection("pid_file:/x", frozenset({9}), WRITTEN).clients(daemon)] == [8]


def test_who_has_left_is_ended_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpstui.operations.selectors.Cgroups.where_is", lambda self, pid: {7: JOB}.get(pid))
    assert left("job:7", client(7), False) is None
    assert left("job:7", client(8), False) == "process 8 is not, or no longer, in job 7"
    assert left("job:8", client(7), False) == "process 7 is not, or no longer, in job 8"
    assert left("job:7", client(7, local=False), False) == "process 7 is not, or no longer, in job 7"
    assert left("job:7", client(1, local=False, pid_here=7), False) is None
    for within in ("", "pid_file:/x"):
        assert left(within, client(8), False) is None
    told = client(8, where=JOB)
    assert (left("job:7", told, True), left("job:7", told, False) is None) == (None, False), "of a simulated one alone"


@pytest.mark.parametrize(
    ("where", "kind", "names", "others"),
    [
        (JOB, "job", ["7", "slurm:7"], ["slurm:", "77", "pbs:7", ""]),
        (
            Where(batch="pbs", job="47[3].server"),
            "job",
            ["47[3]", "47[3].server", "pbs:47[3].server"],
            ["47", "server"],
        ),
        (POD, "pod", ["u", "ml/train-0"], ["ml", "other/train-0", ""]),
        (Where(unit="a.service"), "unit", ["a", "a.service"], ["a.serv", "service", ""]),
        (Where(unit="a.scope"), "unit", ["a.scope"], ["a"]),
        (Where(), "job", [], ["", "None"]),
        (Where(), "pod", [], ["", "None"]),
        (Where(), "unit", [], ["", "None"]),
    ],
)
def test_it_is_exactly_what_was_named(where: Where, kind: str, names: list[str], others: list[str]) -> None:
    assert [name for name in (*names, *others) if is_named(where, kind, name)] == names
    for wrong in {"job", "pod", "unit", "cgroup", "pid_file", ""} - {kind}:
        assert not any(is_named(where, wrong, name) for name in names)
    claimed = replace(where, claimed=frozenset({kind}))
    assert not any(is_named(claimed, kind, name) for name in names)


def test_of_a_container_that_is_claimed_a_unit_and_a_job_are_known() -> None:
    for kind, where in (("job", replace(JOB, step="0")), ("unit", Where(unit="a.service"))):
        said = where.text()
        assert is_named(replace(where, claimed=frozenset({"container"})), kind, said), said


def test_of_whom_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "_namespace", lambda process: 0xF00003A2)
    monkeypatch.setattr("mpstui.operations.selectors.Cgroups.where_is", lambda self, pid: {7: JOB}.get(pid))
    seen, here, unseen = client(7), client(1, local=False, pid_here=7), client(8)
    assert Selection("job:7").unknown(of(seen, here)) == (0, "")
    count, why = Selection("job:7").unknown(of(seen, unseen, client(9)))
    assert (count, "--cgroup self" in why) == (2, True)
    assert Selection("job:7").unknown(of(unseen, simulated=True)) == (0, "")
    count, why = Selection("job:7").unknown(of(seen, client(7, local=False), client(8, local=False)))
    assert (count, "hostPID" in why) == (2, True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("host", "a"), ("job", ""), ("job", "a b"), ("job", "\x1b7"), ("job", "7" * 301), ("cgroup", "/"), ("cgroup", "a")]
    + [("cgroup", name) for name in ("/a/../b", "/a/./b", "//", "a/b")],
)
def test_what_names_nothing_is_refused_before_anything_is_asked(kind: str, name: str) -> None:
    with pytest.raises(Refused) as refused:
        select(kind, name)
    assert refused.value.status is ExitStatus.USAGE


def test_a_file_names_the_processes_that_are_in_it(tmp_path: Path) -> None:
    (file := tmp_path / "pids").write_text("7 8\n4294967295\n")
    os.utime(file, (WRITTEN, WRITTEN))
    chosen = select("pid_file", os.fspath(file))
    assert (chosen.pids, chosen.written, str(chosen)) == ({7, 8, 4294967295}, WRITTEN, f"the file {file}")
    for text, taken in (("", True), ("1" + " " * 65535, True), ("1" + " " * 65536, False), ("7 0", False)):
        file.write_text(text)
        if taken:
            assert pids_in(file)[0] == ({1} if text else set())
            continue
        with pytest.raises(Refused, match="something else than process ids"):
            pids_in(file)


@pytest.mark.parametrize(
    ("own", "outer", "namespaces", "found"),
    [
        (("/a",), (), (1, 1), "/a"),
        (("/",), ("/",), (7, 7), "/"),  # in a container with a namespace of its own
        (("/",), ("/",), (7, 8), None),  # the host's init is seen: this is no container
        (("/../b",), ("/x",), (7, 7), None),  # outside of what this namespace shows
        (("/",), ("/x",), (None, None), None),
    ],
)
def test_the_own_cgroup_is_never_the_whole_node(
    monkeypatch: pytest.MonkeyPatch, own: Sequence[str], outer: Sequence[str], namespaces: Sequence[int], found: str
) -> None:
    there = {"self": (own, namespaces[0]), "1": (outer, namespaces[1])}
    monkeypatch.setattr(selectors, "_cgroups", lambda process: tuple(Cgroup("", path) for path in there[process][0]))
    monkeypatch.setattr(selectors, "_namespace", lambda process: there[process][1])
    if found is None:
        with pytest.raises(Refused, match="--cgroup self names nothing"):
            select("cgroup", "self")
    else:
        assert select("cgroup", "self").within == f"cgroup:{found}"
