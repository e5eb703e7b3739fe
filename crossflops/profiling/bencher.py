"""`python -m crossflops.profiling.bencher`: trains and times one model of PyTorch at one batch.

As `crossflops.bench.bencher`, of which it is the other side for a training step.
"""

from crossflops.bench.bencher import build_ordered_model, run_to_answer
from crossflops.bench.timing import Answer, Ran, TrainingOrder
from crossflops.profiling.run import Recipe, device_name, time_steps
from crossflops.profiling.watch import device_of
from crossflops.workers.conversation import Wait, serve_order


def main() -> None:
    """Read the order of a training run from stdin, run it, and write the answer."""
    serve_order(TrainingOrder, answer_training_order)


def answer_training_order(order: TrainingOrder, wait: Wait) -> Answer:
    """Train the model of an order; return the measured times of its steps, or the error."""
    return run_to_answer(lambda: run_steps(order), order.batch)


def run_steps(order: TrainingOrder) -> Ran:
    """Build the model of an order and train it for some steps; return their measured times."""
    import torch

    source = build_ordered_model(order)
    recipe = Recipe(
        optimizer=order.optimizer,
        examples=order.batch,
        training=order.setting.training,
        threads=order.threads,
        limits=order.limits,
    )
    args, kwargs = source.args, dict(source.kwargs)
    measurement, phases = time_steps(source.model, args, kwargs, recipe)
    return Ran(
        runtime=f"torch {torch.__version__}",
        device=device_name(device_of(source.model)),
        inputs={},
        measurement=measurement,
        phases=phases,
        notes=tuple(filter(None, [phases.note])),
    )


if __name__ == "__main__":
    main()
