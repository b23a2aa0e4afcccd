from __future__ import annotations

import math
import os
from pathlib import Path

import click
import pytest

from cp_matrix.cli.values import BATCH_SIZE, RANKS_PER_GPU, OutputFile, Seconds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e300", "-inf", "x", ""])
def test_what_is_no_time_to_wait_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Seconds().convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("0.5", 0.5), ("3", 3.0), ("1e8", 1e8)])
def test_seconds_are_taken_as_they_are(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_file_may_be_new_or_there_already(tmp_path: Path, name: str) -> None:
    (tmp_path / "old").touch()
    assert OutputFile().convert(str(tmp_path / name), None, None) == tmp_path / name


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert OutputFile().convert(str(tmp_path / "link"), None, None) == tmp_path / "file"


@pytest.mark.parametrize("kind", ["device", "pipe", "link to a device"])
def test_nothing_but_a_file_is_ever_replaced(tmp_path: Path, kind: str) -> None:
    path = Path(os.devnull) if kind == "device" else tmp_path / "there"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to(os.devnull)
    with pytest.raises(click.BadParameter, match="no regular file"):
        OutputFile().convert(str(path), None, None)


def test_a_number_or_a_word_is_taken() -> None:
    taken = [BATCH_SIZE.convert(text, None, None) for text in ("16", "all")]
    assert (taken, RANKS_PER_GPU.convert("auto", None, None)) == ([16, math.inf], None)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "auto", "", "x"])
def test_neither_a_number_nor_the_word_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"neither a number of cases .1 or more. nor 'all'"):
        BATCH_SIZE.convert(text, None, None)
