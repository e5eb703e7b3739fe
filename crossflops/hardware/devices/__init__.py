"""The catalogue: devices, their names, and what each can do at most.

In: the name of a device, as a driver prints it. Out: devices, and sheets that show them.
May import: hardware, plugins, report, ir, errors.
"""
