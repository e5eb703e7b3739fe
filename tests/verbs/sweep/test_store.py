"""The store of a sweep survives SIGKILL at any moment, and takes several writers at once."""

import multiprocessing
import os
import random
import signal
import sqlite3
import time

import pytest

from crossflops.errors import InputError
from crossflops.verbs.sweep.store import SweepStore, hash_key

BEYOND_64_BITS = 2**70 + 1
SPAWN = multiprocessing.get_context("spawn")


def group(number):
    """Two rows that belong together, as the native count and one tool of a model."""
    return {
        hash_key({"model": number, "tool": tool}): {"model": number, "tool": tool, "macs": number}
        for tool in ("native", "thop")
    }


def write_groups(folder, numbers, writes):
    """Add the groups that the store does not have; write a line for each one that is computed."""
    store = SweepStore(folder)
    for number in numbers:
        if not set(group(number)) <= store.row_keys():
            store.record_rows(group(number), seconds=0.1)
            with open(writes, "a") as log:
                log.write(f"{number}\n")


def rows(folder):
    """The content of each row of a store, by its key."""
    store = SweepStore(folder)
    return {key: store.read_row(key) for key in store.row_keys()}


def test_an_integer_beyond_64_bits_stays_intact(tmp_path):
    """2**70 + 1 is read back with all its digits."""
    store = SweepStore(tmp_path)
    store.record_rows({"k": {"macs": BEYOND_64_BITS}}, seconds=1.0)
    assert store.read_row("k") == {"macs": BEYOND_64_BITS}


def test_a_key_keeps_its_first_row(tmp_path):
    """A second content of a key is not taken, and new keys beside it are."""
    store = SweepStore(tmp_path)
    store.record_rows({"k": {"macs": 1}}, seconds=1.0)
    store.record_rows({"k": {"macs": 2}, "l": {"macs": 3}}, seconds=1.0)
    assert rows(tmp_path) == {"k": {"macs": 1}, "l": {"macs": 3}}


def test_a_store_that_is_not_there_has_no_rows_and_is_not_made(tmp_path):
    """Asking for keys writes nothing."""
    assert SweepStore(tmp_path / "none").row_keys() == set()
    assert not (tmp_path / "none").exists()


def test_an_index_without_its_table_is_a_store_without_rows(tmp_path):
    """So SQLite leaves it when it is killed as it makes the file."""
    (tmp_path / "index.sqlite").touch()
    store = SweepStore(tmp_path)
    assert store.row_keys() == set()
    store.record_rows({"k": {"macs": 1}}, seconds=1.0)
    assert rows(tmp_path) == {"k": {"macs": 1}}


def test_a_damaged_content_is_counted_again(tmp_path):
    """The message names the file, and the row is gone."""
    store = SweepStore(tmp_path)
    store.record_rows({"k": {"macs": 1}, "l": {"macs": 2}}, seconds=1.0)
    file = next(tmp_path.rglob("*.json"))
    file.write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        store.read_contents(["k", "l"])
    assert len(store.row_keys()) == 1
    store.record_rows({"k": {"macs": 1}, "l": {"macs": 2}}, seconds=1.0)
    assert rows(tmp_path) == {"k": {"macs": 1}, "l": {"macs": 2}}


def test_a_folder_with_another_file_as_its_index_is_an_error(tmp_path):
    """A file that is not of SQLite is named, with a remedy."""
    (tmp_path / "index.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="cannot be used as the store of a sweep"):
        SweepStore(tmp_path).row_keys()


def test_a_row_that_is_not_there_is_an_error(tmp_path):
    """A missing key is an error, not an empty row."""
    with pytest.raises(InputError, match="has no row"):
        SweepStore(tmp_path).read_row("k")


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_writer_that_is_killed_and_started_again_gives_the_same_rows(tmp_path):
    """Three kills lose no row, write no half group, and no recorded group is written twice."""
    moments = random.Random(40)
    numbers = range(100)
    folder, log = tmp_path / "killed", tmp_path / "log"
    killed = 0
    for _ in range(3):
        process = SPAWN.Process(target=write_groups, args=(folder, numbers, log))
        process.start()
        deadline = time.monotonic() + 30
        before = len(SweepStore(folder).row_keys())
        while len(SweepStore(folder).row_keys()) == before and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # until it writes
        time.sleep(moments.random() / 20)
        process.kill()  # nothing, if it ended meanwhile
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        assert len(SweepStore(folder).row_keys()) % 2 == 0  # a group is there or is not
        rows(folder)  # each row of the index can be read
    assert killed  # else nothing was tried
    write_groups(folder, numbers, log)
    write_groups(tmp_path / "through", numbers, tmp_path / "other")
    assert rows(folder) == rows(tmp_path / "through")
    computed = log.read_text().split()
    assert len(computed) == len(set(computed))


def test_two_writers_at_once_do_no_harm(tmp_path):
    """Two writers with the same groups, in opposite orders, give the rows of one."""
    numbers = range(15)
    writers = [
        SPAWN.Process(target=write_groups, args=(tmp_path / "both", order, tmp_path / f"log{n}"))
        for n, order in enumerate((numbers, numbers[::-1]))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    write_groups(tmp_path / "through", numbers, tmp_path / "log")
    assert rows(tmp_path / "both") == rows(tmp_path / "through")
    with sqlite3.connect(tmp_path / "both" / "index.sqlite") as index:
        assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
