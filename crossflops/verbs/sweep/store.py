"""The store of a sweep: one row for each model, input and tool, by the hash of its key.

A folder with an SQLite index and one JSON file for each content, named by its hash. A row is
there completely or not at all, after the end of a process at any moment, and several processes
may write to one store.
"""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crossflops.errors import InputError
from crossflops.files import write_file

_INDEX = "index.sqlite"
_HINT = "choose another folder with --store"
_WAIT = 60.0  # seconds for another process that writes
_TABLE = (
    "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, content TEXT NOT NULL, "
    "seconds REAL NOT NULL, recorded REAL NOT NULL, computed INTEGER NOT NULL) WITHOUT ROWID"
)
_INSERT = (
    "INSERT INTO rows VALUES (?, ?, ?, ?, 1) "
    "ON CONFLICT (key) DO UPDATE SET computed = computed + 1"
)
_WRITING = threading.Lock()  # a draft of a file is named by its process


def hash_key(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fields as JSON with sorted keys; equal fields give equal texts.

    >>> hash_key({"a": 1, "b": 2}) == hash_key({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(_to_json_bytes(fields)).hexdigest()


def _to_json_bytes(value: Any) -> bytes:
    """Return a value as JSON. Integers have all their digits, also those beyond 64 bits."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


class SweepStore:
    """The rows of sweeps in a folder, which is made with the first row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def exists(self) -> bool:
        """Whether the folder has an index of rows."""
        return (self._folder / _INDEX).is_file()

    def row_keys(self) -> set[str]:
        """Return the keys of all rows."""
        return {key for key, _ in self._select_index_rows("SELECT key, content FROM rows")}

    def make_index(self) -> None:
        """Make the folder with an empty index, unless it is there. Raises InputError if it cannot
        be made.
        """
        if self.exists:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._store_error(error) from error
        with self._open_index_transaction("rwc"):
            pass

    def record_rows(self, rows: Mapping[str, Mapping[str, Any]], seconds: float) -> None:
        """Add the rows, {key: content}: all of them or none. A key that the store has keeps its
        row, and is counted as computed once more.

        The files are written first, so that an index never names a file that is not there.
        """
        self.make_index()
        hashes = {key: self._write_content(content) for key, content in rows.items()}
        with self._open_index_transaction("rw") as index:
            now = time.time()
            index.executemany(_INSERT, [(key, name, seconds, now) for key, name in hashes.items()])

    def read_row(self, key: str) -> dict[str, Any]:
        """Return the content of a row. Raises InputError if the store has no such row."""
        return self.read_contents([key])[key]

    def read_contents(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the contents of the rows with these keys. Raises InputError if the store does
        not have one of them.
        """
        names = dict(self._select_index_rows("SELECT key, content FROM rows"))
        contents = {}
        for key in keys:
            if key not in names:
                raise InputError(f"{self._folder} has no row {key}", "run the sweep again")
            contents[key] = self._read_content(names[key])
        return contents

    def read_rows(self) -> list[dict[str, Any]]:
        """Return the contents of all rows, the oldest first."""
        names = self._select_index_rows("SELECT key, content FROM rows ORDER BY recorded, key")
        return [self._read_content(name) for _, name in names]

    def remove_failures(self, keys: Iterable[str]) -> None:
        """Remove the rows with these keys that have a failure instead of a number; a key that
        the store does not have is skipped.
        """
        failures = [
            key
            for key in self.row_keys() & set(keys)
            if self.read_row(key).get("row", {}).get("failure")
        ]
        if failures:
            with self._open_index_transaction("rw") as index:
                index.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in failures])

    def computation_counts(self) -> dict[str, int]:
        """Return how often each row was computed, by its key."""
        return dict(self._select_index_rows("SELECT key, computed FROM rows"))

    def _select_index_rows(self, query: str) -> list[tuple[Any, Any]]:
        """Return the rows of a query, [] if there is no store; nothing is made."""
        if not self.exists:
            return []
        with self._open_index_transaction("rw") as index:
            return index.execute(query).fetchall()

    def _write_content(self, content: Mapping[str, Any]) -> str:
        """Write the JSON file of a content, unless it is there; return its hash."""
        data = _to_json_bytes(content)
        name = hashlib.sha256(data).hexdigest()
        file = self._content_file(name)
        with _WRITING:
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_file(file, data, _HINT)
        return name

    def _read_content(self, content_hash: str) -> dict[str, Any]:
        """Return the content of a file, by its hash. Raises InputError for a file that is not
        what was written; its rows are removed from the index.
        """
        file = self._content_file(content_hash)
        try:
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest() == content_hash:
                content: dict[str, Any] = json.loads(data)
                return content
        except OSError:
            pass
        with self._open_index_transaction("rw") as index:
            index.execute("DELETE FROM rows WHERE content = ?", (content_hash,))
        file.unlink(missing_ok=True)
        raise InputError(
            f"{file} is damaged or does not exist, so its row was removed from the store",
            "run the sweep again",
        )

    def _content_file(self, content_hash: str) -> Path:
        """Return the path of the JSON file of a content, by its hash."""
        return self._folder / "contents" / content_hash[:2] / f"{content_hash}.json"

    @contextmanager
    def _open_index_transaction(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Open the index of the store inside one transaction, and yield the connection; the mode
        "rwc" makes a missing index, "rw" does not.

        Raises InputError if it is not an index of a sweep or cannot be written.
        """
        address = f"file:{quote(str((self._folder / _INDEX).absolute()))}?mode={mode}"
        try:
            with closing(sqlite3.connect(address, timeout=_WAIT, uri=True)) as index, index:
                index.execute(_TABLE)  # a process may have ended between the file and the table
                yield index
        except (OSError, sqlite3.Error) as error:
            raise self._store_error(error) from error

    def _store_error(self, error: Exception) -> InputError:
        """Return the error for a folder that cannot be a store."""
        return InputError(f"{self._folder} cannot be used as the store of a sweep: {error}", _HINT)
