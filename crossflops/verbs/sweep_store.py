"""The store of a sweep: one row for each model, input and tool, by the hash of its key.

A folder with an SQLite index and one JSON file for each content, named by its hash. A row is
there completely or not at all, after the end of a process at any moment, and several processes
may write to one store.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crossflops.errors import InputError
from crossflops.files import write_file

_INDEX = "index.sqlite"
_HINT = "choose another folder for the store"
_WAIT = 60.0  # seconds for another process that writes
_TABLE = (
    "CREATE TABLE IF NOT EXISTS rows "
    "(key TEXT PRIMARY KEY, content TEXT NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID"
)


def hash_key(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fields as JSON with sorted keys; equal fields give equal texts.

    >>> hash_key({"a": 1, "b": 2}) == hash_key({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(_to_json(fields)).hexdigest()


def _to_json(value: Any) -> bytes:
    """Return a value as JSON. Integers have all their digits, also those beyond 64 bits."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


class SweepStore:
    """The rows of sweeps in a folder, which is made with the first row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def row_keys(self) -> set[str]:
        """Return the keys of all rows."""
        if not (self._folder / _INDEX).is_file():
            return set()
        with self._index() as index:
            return {key for (key,) in index.execute("SELECT key FROM rows")}

    def record_rows(self, rows: Mapping[str, Mapping[str, Any]], seconds: float) -> None:
        """Add the rows, {key: content}: all of them or none. A key that the store has keeps its
        row.

        The files are written first, so that an index never names a file that is not there.
        """
        hashes = {key: self._write_content(content) for key, content in rows.items()}
        with self._index() as index:
            index.executemany(
                "INSERT OR IGNORE INTO rows VALUES (?, ?, ?)",
                [(key, name, seconds) for key, name in hashes.items()],
            )

    def read_row(self, key: str) -> dict[str, Any]:
        """Return the content of a row. Raises InputError if the store has no such row."""
        with self._index() as index:
            match = index.execute("SELECT content FROM rows WHERE key = ?", (key,)).fetchone()
        if match is None:
            raise InputError(f"{self._folder} has no row {key}", "run the sweep again")
        row: dict[str, Any] = json.loads(self._content_file(match[0]).read_bytes())
        return row

    def _write_content(self, content: Mapping[str, Any]) -> str:
        """Write the JSON file of a content, unless it is there; return its hash."""
        data = _to_json(content)
        name = hashlib.sha256(data).hexdigest()
        file = self._content_file(name)
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, data, _HINT)
        return name

    def _content_file(self, name: str) -> Path:
        """Return the path of the JSON file of a content, by its hash."""
        return self._folder / "contents" / name[:2] / f"{name}.json"

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """Open the index for one transaction. Raises InputError if it is not an index of a sweep
        or cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._folder / _INDEX, timeout=_WAIT)) as index, index:
                index.execute(_TABLE)
                yield index
        except (OSError, sqlite3.Error) as error:
            message = f"{self._folder} cannot be used as the store of a sweep: {error}"
            raise InputError(message, _HINT) from error
