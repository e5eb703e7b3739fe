"""The attributes of other libraries that crossflops replaces, and the only way to replace them.

In: an owner, a name and a value, with the `Patch` of `inventory.py` that declares it. Out: the
attribute, replaced for a block (`patching.py`), and for `doctor` what the installed releases have
in the place of every target (`installed.py`).
May import: errors.
"""
