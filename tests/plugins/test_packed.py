"""A model on its way into a worker: what is written comes back as it was."""

import io
import zipfile

from crossflops.workers.jobs import read_model_contents, write_model_contents


def test_a_pickle_that_ends_with_a_zip_is_a_pickle(tmp_path):
    """So a model of Keras is written, and PyTorch's files are zips: they are told apart."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("config.json", "{}")
    contents = ({"model": archive.getvalue()}, (1,), {"training": False})
    write_model_contents(tmp_path / "model", contents)
    assert zipfile.is_zipfile(tmp_path / "model")
    assert read_model_contents(tmp_path / "model") == contents
