"""Running a model."""
