from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.mailbox import (
    After,
    Ended,
    Mailbox,
    Order,
    ProcessId,
    Ready,
    WorldSpec,
    write_atomically,
)
from cp_matrix.record.results import Leak, LogSpan, RankError, RankResult, TensorError

SPEC = WorldSpec(
    name="w0001",
    world_size=2,
    devices=("GPU-1", "GPU-1"),
    suite="s:f",
    environment={"A": "ü"},
    seed=7,
    collective_timeout=120.5,
    logs="/runs/logs/w0001",
    logs_relative="logs/w0001",
    start="cold",
    import_path=("/suites",),
)
LEAK = Leak("working directory", "cwd", put_right=True, origin="t[b]")
RECORD = RankResult(
    case="t[a]",
    attempt=2,
    rank=1,
    ok=False,
    started=1.5,
    seconds=0.25,
    error=RankError("ValueError", "first\nsecond \x00", "Traceback …"),
    metrics=(TensorError("dq", None, None, 1e-5, 0.0, 2.0, False, "not finite"),),
    values={"tokens": 3.0, "backend": "flash"},
    phases={"forward": 0.1},
    peak_memory=1 << 40,
    leaks=(LEAK,),
    unhealthy="no",
    log=LogSpan("logs/w0001/rank1.log", 0, 12),
)


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox.create(tmp_path / "w0001", SPEC)


@pytest.mark.parametrize(
    ("put", "get", "message"),
    [
        (lambda box, m: None, lambda box: box.spec(), SPEC),
        (lambda box, m: box.put_order(3, m), lambda box: box.order(3), Order("t[a]", 2, {"n": 1})),
        (lambda box, m: box.put_order(3, m), lambda box: box.order(3), Order()),
        (lambda box, m: box.put_ready(1, m), lambda box: box.ready(1), Ready("cuda:0", True)),
        (lambda box, m: box.put_broken(1, m), lambda box: box.broken(1), RankError("E", "m", "t")),
        (lambda box, m: box.put_result(3, m), lambda box: box.result(3, 1), RECORD),
        (lambda box, m: box.put_after(3, 1, m, go=True), lambda box: box.after(3, 1), After((LEAK,), "no")),
        (lambda box, m: box.put_ended(m), lambda box: box.ended(), Ended({0: -9, 1: 3}, "ranks failed")),
        (lambda box, m: box.put_pid(1), lambda box: box.pid(1), ProcessId.own()),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "__struct_fields__") else "",
)
def test_a_message_is_read_as_it_was_written(
    box: Mailbox, put: Callable[[Mailbox, Any], None], get: Callable[[Mailbox], Any], message: Any
) -> None:
    put(box, message)
    assert get(box) == message


def test_what_nobody_has_written_is_none(box: Mailbox) -> None:
    answers = [box.order(0), box.ready(0), box.broken(0), box.result(0, 0), box.after(0, 0), box.gate(0, 0)]
    assert [*answers, box.ended(), box.pid(0)] == [None] * 8


def test_a_folder_that_is_no_mailbox_has_no_description(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Mailbox(tmp_path).spec()


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT


@given(st.dictionaries(TEXT, SCALARS | st.lists(SCALARS).map(tuple)))
def test_parameters_keep_their_values_and_their_types(params: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box = Mailbox(Path(folder))
        (box.folder / "orders").mkdir()
        box.put_order(0, Order("t[a]", 1, params))
        order = box.order(0)
    assert order is not None
    assert repr(order.params) == repr(params)


def test_a_rank_that_has_not_entered_is_told_from_one_that_has(box: Mailbox) -> None:
    box.mark_entered(0, 1, 12.5, 300)
    assert [box.entered(0, rank) for rank in (0, 1)] == [None, (12.5, 300)]


@pytest.mark.parametrize("go", [True, False])
def test_a_gate_says_whether_the_rank_can_go_on(box: Mailbox, go: bool) -> None:
    box.put_after(2, 0, After(), go=go)
    assert box.gate(2, 0) is go


@pytest.mark.parametrize(
    ("spoilt", "what"),
    [
        ({"metrics": (TensorError(3, 0.0, 0.0, 0.0, 0.0),)}, "str"),  # type: ignore[arg-type]
        ({"values": {"x": [1]}}, "values"),
        ({"phases": {"x": float("nan")}}, "phases"),
    ],
)
def test_a_record_that_no_reader_would_accept_is_refused_where_it_is_written(
    box: Mailbox, spoilt: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        box.put_result(0, RankResult("t[a]", 1, 0, True, 0.0, 0.0, **spoilt))


# Messages that are being written.


def test_a_reader_never_sees_a_part_of_a_message(tmp_path: Path) -> None:
    path, versions = tmp_path / "message", [bytes([65 + n]) * 300_000 for n in range(4)]
    write_atomically(path, versions[0])
    done = threading.Event()

    def write() -> None:
        for n in range(120):
            write_atomically(path, versions[n % 4])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(path.read_bytes())
    writer.join()
    assert seen <= set(versions)


def test_a_message_whose_writer_is_killed_does_not_exist(box: Mailbox) -> None:
    # The size limit ends the process by SIGXFSZ in the middle of the write.
    program = """if True:
        import resource, signal, sys
        from pathlib import Path
        from cp_matrix.mailbox import write_atomically
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        write_atomically(Path(sys.argv[1]), b"x" * 5000)
        """
    path = box.folder / "cases" / "0.0.result"
    ended = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert (-ended.returncode, box.result(0, 0)) == (signal.SIGXFSZ, None)


def test_what_a_killed_writer_leaves_is_discarded(box: Mailbox) -> None:
    (box.folder / "cases" / ".0.0.result.123.tmp").write_text("{")
    box.put_result(0, RECORD)
    box.discard_unfinished()
    assert [path.name for path in (box.folder / "cases").iterdir()] == ["0.1.result"]


def test_what_a_killed_launcher_leaves_is_discarded(box: Mailbox) -> None:
    (box.folder / ".ended.123.tmp").write_text("{")
    box.discard_unfinished()
    assert list(box.folder.glob(".*")) == []


def test_a_message_that_cannot_be_written_leaves_nothing_and_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.mkdir()
    with pytest.raises(OSError, match="message") as caught:
        write_atomically(path, b"x")
    assert (caught.value.filename, [one.name for one in tmp_path.iterdir()]) == (str(path), ["message"])


def test_a_message_goes_where_a_symbolic_link_of_its_name_was(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "message").symlink_to("target")
    write_atomically(tmp_path / "message", b"new")
    assert ((tmp_path / "target").read_text(), (tmp_path / "message").read_text()) == ("kept", "new")


def test_two_processes_do_not_share_a_temporary_name(tmp_path: Path) -> None:
    names: list[str] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        names.append(self.name)
        return real(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        write_atomically(tmp_path / "message", b"x")
    assert str(os.getpid()) in names[0]
