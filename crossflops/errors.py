"""Everything that crossflops raises on purpose: what is wrong, what to do, where to read more."""


class CrossflopsError(Exception):
    """The root. `message` says what is wrong in one line, `hint` what to do in one line.

    `exit_status` is what the command line exits with.
    """

    exit_status = 2

    def __init__(self, message: str, hint: str, reference: str = "") -> None:
        super().__init__(message)
        self.message = _one_line(message)
        self.hint = _one_line(hint)
        self.reference = reference


class TargetError(CrossflopsError):
    """The model cannot be found, loaded or built."""


class InputError(CrossflopsError):
    """The inputs do not fit the model, or are written wrongly."""


class OperandError(CrossflopsError):
    """A node has operands that its operator cannot take: the graph cannot run as it is."""


class NormalizeError(CrossflopsError):
    """The model was built, but no graph could be made of it."""


class UnknownNameError(CrossflopsError):
    """A tool, a cause, a device, a convention or a format that does not exist, or is ambiguous."""


class MissingExtraError(CrossflopsError):
    """A framework that is not installed."""


class CrossflopsWarning(UserWarning):
    """Something about a model that whoever reads its count should know."""


def _one_line(text: str) -> str:
    return " ".join(text.split())
