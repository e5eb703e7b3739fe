"""The verb `compare`: ask the tools, explain, set two models against each other."""
