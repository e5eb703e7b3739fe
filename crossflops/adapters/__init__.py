"""Running other counters: the contract, discovery by entry points, and a worker process per tool.

Import from the modules: `contract` for whoever writes an adapter, `discovery` for what is
installed, `pool` for running tools side by side, `observe` for running one in this process.
"""
