"""The amount that a formula gives for a call that is made up."""

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace
from crossflops.rules.conditions import Site


def amount(formula, target, inputs, outputs, weight=None, call_settings=None, **module_settings):
    """A formula on a call: inputs by name, outputs and the module's weight by shape."""
    call = Call(
        key="call",
        parent=None,
        level="operator",
        target=target,
        module=0,
        settings=call_settings or {},
        inputs=tuple(TensorSpec(key, "float32", shape) for key, shape in inputs.items()),
        outputs=tuple(TensorSpec("0", "float32", shape) for shape in outputs),
    )
    module = Module(
        id=0,
        names=("",),
        bases=(target,),
        params=(Parameter("weight", weight, 0),) if weight else (),
        children=(),
        training=False,
        settings=module_settings,
    )
    return formula(Site(call, Trace(calls=(call,), modules=(module,), setting=Setting())))
