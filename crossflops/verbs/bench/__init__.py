"""The verb `bench`: run a model, and account for the time of a run."""
