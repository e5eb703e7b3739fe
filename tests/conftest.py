"""How hypothesis draws: the same cases in every run, so that a change alone can fail a test.

`HYPOTHESIS_PROFILE=wide python -m pytest tests` draws others, and more of them.
"""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("wide", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
