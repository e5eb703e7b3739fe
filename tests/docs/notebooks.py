"""The notebooks of docs/notebooks, and the runs that their outputs come from.

    python -m tests.docs.notebooks [NAME.ipynb ...]   run all, or these; write the outputs

What goes to stderr is left out: warnings name folders of this machine.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = tuple(sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")))
SECONDS = 600


def run_notebook(path: Path, folder: Path) -> Any:
    """Return a notebook with the outputs of a run in this folder.

    Raises CellExecutionError of nbclient if a cell raises.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=SECONDS, record_timing=False, resources=place)
    client.execute(env=os.environ | {"PYTHONPATH": import_path()})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = stable_outputs(cell.outputs)
            cell.execution_count = None
    return notebook


def import_path() -> str:
    """Return the PYTHONPATH with which a kernel imports the package of this repository."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def stable_outputs(outputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a cell that are the same in each run.

    Without stderr and the number of the cell. What is printed is one output, whether it came in
    one piece or in several. A command writes to a terminal: its lines end with a carriage return.
    """
    stable: list[Any] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if "execution_count" in output:
            output["execution_count"] = None
        if output["output_type"] == "stream":
            output["text"] = output["text"].replace("\r\n", "\n")
            if stable and stable[-1]["output_type"] == "stream":
                stable[-1]["text"] += output["text"]
                continue
        stable.append(output)
    return stable


def shown_outputs(notebook: Any) -> list[list[Any]]:
    """Return what each code cell of a notebook prints and displays."""
    return [list(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


def main(names: Sequence[str]) -> None:
    """Run the notebooks of these names, or all, and write their outputs into them."""
    import nbformat

    for path in NOTEBOOKS:
        if names and path.name not in names:
            continue
        with TemporaryDirectory() as folder:
            nbformat.write(run_notebook(path, Path(folder)), path)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
