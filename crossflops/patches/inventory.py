"""List every attribute of another library that crossflops replaces: which, why, and since when.

In the order of their libraries. A plugin of another author declares a `Patch` of its own.
"""

from crossflops.patches.patching import ANY, Patch

_TORCH = "torch 2.9 - 2.13"
_ONNXSCRIPT = "onnxscript 0.7"
_ONNX_IR = "onnx-ir 1.1"
_PYTHON = "Python 3.11 - 3.14"
_TENSORFLOW = "tensorflow 2.18 - 2.21"
_KERAS = "keras 3.10 - 3.15"
_TF2ONNX = "tf2onnx 1.17"
_JAX = "jax 0.10"
_JAX2ONNX = "jax2onnx 0.17"
_SKL2ONNX = "skl2onnx 1.18 - 1.20"

# Python itself.

STREAMS = Patch(
    "python", "sys", ("stdout", "stderr", "stdin"),
    "drop what one thread writes while a model is counted",
    _PYTHON, in_text=False,
)  # fmt: skip
WARNINGS = Patch(
    "python", "warnings", ("showwarning",), "record warnings of one thread", _PYTHON,
    in_text=False,
)  # fmt: skip
LOGS = Patch("python", "logging:Logger", ("handle",), "drop records of one thread", _PYTHON)
IMPORTS = Patch(
    "python", "importlib.machinery:SourceFileLoader", ("exec_module",),
    "import modules outside of the modes in which a model is built", _PYTHON, in_text=False,
)  # fmt: skip
ONE_IMPORT = Patch(
    "python", "importlib.abc:Loader", ("exec_module",),
    "show what TensorFlow's libraries say at import only where it fails", _PYTHON, in_text=False,
)  # fmt: skip
MODULES = Patch(
    "python", "sys", ("modules",), "hide packages that are slow to import, or not installed",
    _PYTHON, in_text=False,
)  # fmt: skip

PROTOCOLS = Patch(
    "python", "typing", ("_get_protocol_attrs",), "collect the names of a protocol once",
    _PYTHON, is_optional=True,
)  # fmt: skip
COLLECTIONS = Patch(
    "python", "collections", ("Iterable",), "let thop 0.0.31 find what Python 3.10 took away",
    _PYTHON, is_added=True, in_text=False,
)  # fmt: skip

# PyTorch: how calls are seen.

FUNCTIONS = Patch(
    "torch", "torch", (ANY,),
    "record the calls of all functions that torch.overrides lists, also of torch.nn.functional, "
    "torch.linalg, torch.special, torch.fft and torch.Tensor",
    _TORCH, in_text=False,
)  # fmt: skip
DERIVATIVES = Patch(
    "torch", "torch", (ANY,), "see that a model takes derivatives", _TORCH, in_text=False
)
MAKE_DUAL = Patch(
    "torch", "torch.autograd.forward_ad", ("make_dual",), "refuse tangents, which exports lose",
    _TORCH,
)  # fmt: skip
MODULE_CALLS = Patch(
    "torch", "torch.nn.modules.module:Module", ("_call_impl", "_apply"),
    "record the calls of modules, and let a forward cast its weights", _TORCH,
)  # fmt: skip
FORWARDS = Patch(
    "torch", "torch.nn", ("forward",), "record the forward of every class of a model", _TORCH,
    in_text=False,
)  # fmt: skip
FORMAT = Patch(
    "torch", "torch._tensor:Tensor", ("__format__",), "write a traced number as a run does",
    _TORCH,
)  # fmt: skip
AUTOCAST = Patch(
    "torch", "torch.amp.autocast_mode:autocast", ("__enter__", "__exit__"),
    "keep autocast from the export", _TORCH,
)  # fmt: skip
SCRIPT = Patch(
    "torch", "torch.jit._script", ("_script_impl",), "compile functions as they were", _TORCH
)
SCRIPT_CALL = Patch(
    "torch", "torch.jit:ScriptFunction", ("__call__",), "record a scripted function as one call",
    _TORCH, in_text=False,
)  # fmt: skip
VMAP = Patch(
    "torch", "torch._functorch.apis", ("vmap_impl",), "record what runs under torch.vmap",
    _TORCH, in_text=False,
)  # fmt: skip
CUSTOM_FUNCTION = Patch(
    "torch", "torch.autograd.function:Function", ("apply",),
    "record custom autograd functions, and run their backward", _TORCH,
)  # fmt: skip
CUSTOM_FUNCTION_BASE = Patch(
    "torch", "torch.autograd.function:_SingleLevelFunction", ("apply",),
    "see custom functions that a model applies by a method that it took before", _TORCH,
    is_optional=True, in_text=False,
)  # fmt: skip
CUSTOM_BACKWARD = Patch(
    "torch", "torch.autograd.function:BackwardCFunction", ("apply", "apply_boxed"),
    "see what the backward of a custom function runs", _TORCH,
)  # fmt: skip
SAVED_TENSORS = Patch(
    "torch", "torch.autograd.function:BackwardCFunction", ("saved_tensors",),
    "see what a custom function reads of its forward pass", _TORCH, in_text=False,
)  # fmt: skip
SAVE_FOR_BACKWARD = Patch(
    "torch", "torch.autograd.function:FunctionCtx", ("save_for_backward",),
    "see what a custom function saves", _TORCH,
)  # fmt: skip
CHECKPOINTS = Patch(
    "torch", "torch.utils.checkpoint",
    (
        "_checkpoint_without_reentrant_generator",
        "_checkpoint_without_reentrant_generator_impl",  # from 2.14
    ),
    "note which part of a model a checkpoint runs", _TORCH, is_optional=True,
)  # fmt: skip
REENTRANT_CHECKPOINTS = Patch(
    "torch", "torch.utils.checkpoint:CheckpointFunction", ("forward",), CHECKPOINTS.why, _TORCH
)
OPERATOR_CALLS = Patch(
    "torch", "torch._ops:OpOverload", ("__call__",),
    "record the operators that a custom operator calls", _TORCH,
)  # fmt: skip
DEAD_OPERATORS = Patch(
    "torch", "torch.fx.graph:Graph", ("eliminate_dead_code",),
    "note which operators an export drops as dead", _TORCH,
)  # fmt: skip
PACKET_CALLS = Patch(
    "torch", "torch._ops:OpOverloadPacket", ("__call__",), OPERATOR_CALLS.why, _TORCH
)

# PyTorch: how a model runs where its tensors have no values, or some.

NUMPY = Patch(
    "torch", "torch:Tensor", ("numpy",), "hand NumPy the values of traced tensors", _TORCH,
    in_text=False,
)  # fmt: skip
PACKED = Patch(
    "torch", "torch._VF", ("_pad_packed_sequence",), "read the lengths of packed sequences",
    _TORCH, in_text=False,
)  # fmt: skip
DATA = Patch(
    "torch", "torch:Tensor", ("data",), "let torch.export see what comes from `data`", _TORCH,
    in_text=False,
)  # fmt: skip
QUESTIONS = Patch(
    "torch", "torch", (ANY,),
    "answer what a model asks of its tracer, and write while_loop out; wherever a module holds "
    "the function",
    _TORCH, in_text=False,
)  # fmt: skip
FAKE_DISPATCH = Patch(
    "torch", "torch._subclasses.fake_tensor:FakeTensorMode",
    ("_dispatch_impl", "_maybe_infer_fake_kernel_from_pytree_out"),
    "carry real values beside fake tensors", _TORCH,
)  # fmt: skip
FAKE_COPIES = Patch(
    "torch", "torch._subclasses.meta_utils", ("_safe_copy",), "copy the values of parameters",
    _TORCH,
)  # fmt: skip
OPEN_SIZES = Patch(
    "torch", "torch.fx.experimental.symbolic_shapes:ShapeEnv", ("create_unbacked_symint",),
    "end an export with too many sizes that depend on values", _TORCH,
)  # fmt: skip
RUN_NODE = Patch(
    "torch", "torch.fx.interpreter:Interpreter", ("run_node",), "draw the same numbers again",
    _TORCH,
)  # fmt: skip
GROUPED_PRODUCTS = Patch(
    "torch", "torch._meta_registrations", ("_meta_grouped_mm_common",),
    "let fake tensors have grouped products in every type that a CPU takes", _TORCH,
    is_optional=True,
)  # fmt: skip
TENSOR_COPIES = Patch(
    "torch", "torch._tensor:Tensor", ("__deepcopy__",),
    "copy tensors that have no values, where a module is copied while a model is built", _TORCH,
)  # fmt: skip
SCRIPT_MODULES = Patch(
    "torch", "torch.jit._script:RecursiveScriptModule", ("__init__",),
    "refuse TorchScript on fake tensors", _TORCH,
)  # fmt: skip
SYMBOLIC_VALUES = Patch(
    "torch", "torch.fx.experimental.proxy_tensor", ("extract_val",),
    "keep sparse tensors sparse while a model is traced", _TORCH,
)  # fmt: skip
SPARSE_PRODUCT = Patch(
    "torch", "torch", ("smm",), "give `smm` a size without values", _TORCH, in_text=False
)
TRANSFORMED_FUNCTIONS = Patch(
    "torch", "torch._functorch.autograd_function:CustomFunctionHigherOrderOperator", ("__call__",),
    "let vmap and grad see custom functions before a trace does", _TORCH,
)  # fmt: skip
TRANSFORMED_RESULTS = Patch(
    "torch", "torch._functorch.vmap", ("unwrap_batched",),
    "let a trace see the results of a vmap that PyTorch makes for a custom function", _TORCH,
)  # fmt: skip
QUANTIZED = Patch(
    "torch", "torch", (ANY,),
    "compute what the float model computes in torch.ops.quantized and its kin", _TORCH,
    is_added=True, in_text=False,
)  # fmt: skip
ATTENTION = Patch(
    "torch", "torch.nn.attention.flex_attention",
    (
        "flex_attention_hop", "setup_compilation_env", "_validate_device",
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG",
    ),
    "run FlexAttention as operators", _TORCH, is_optional=True,
)  # fmt: skip
ATTENTION_INDICES = Patch(
    "torch", "torch._dynamo._trace_wrapped_higher_order_op", ("TransformGetItemToIndex",),
    ATTENTION.why, _TORCH, is_optional=True,
)  # fmt: skip
COMPILED = Patch(
    "torch", "torch._dynamo.eval_frame",
    ("_callback_from_stance", "set_fullgraph_compiled_frame_count"),
    "run what a model compiles as Python does", _TORCH, is_optional=True,
)  # fmt: skip
MODEL_METHODS = Patch(
    "torch", "torch.nn:Module", ("forward",),
    "run loops over experts as grouped products, and hand a tool inputs by their names", _TORCH,
    in_text=False,
)  # fmt: skip

# PyTorch: its exporter, and what is written with it.

EXPORT_REGISTRY = Patch(
    "torch", "torch.onnx._internal.exporter._registration:ONNXRegistry", ("from_torchlib",),
    "build the table of ONNX forms once", _TORCH, is_optional=True,
)  # fmt: skip
OPERATOR_SIGNATURES = Patch(
    "onnx-ir", "onnx_ir.schemas:OpSignature", ("from_op_schema",),
    "derive the signature of an ONNX operator once", _ONNX_IR, is_optional=True,
)  # fmt: skip
STACK_TRACES = Patch(
    "torch", "torch.fx.config", ("do_not_emit_stack_traces",),
    "write no lines of code to traced operators, which nothing reads", _TORCH, is_optional=True,
)  # fmt: skip
TENSOR_METADATA = Patch(
    "torch", "torch.fx.experimental.proxy_tensor", ("_extract_tensor_metadata",),
    "describe results of traced operators once, by fake tensors alone", _TORCH, is_optional=True,
)  # fmt: skip
EXPORT_DECOMPOSITION = Patch(
    "torch", "torch.onnx._internal.exporter._fx_passes", ("decompose_with_registry",),
    "take operators apart once for each signature", _TORCH, is_optional=True,
)  # fmt: skip
COMPOSITE_KERNELS = Patch(
    "torch", "torch.export.exported_program",
    ("_override_composite_implicit_decomp", "_split_decomp_table_to_cia_and_python_decomp"),
    "set the kernels of composite operators as one, and restore them", _TORCH,
)  # fmt: skip
EXPORT_DISPATCH = Patch(
    "torch", "torch.onnx._internal.exporter._dispatching", ("dispatch",),
    "take the ONNX forms of crossflops first", _TORCH,
)  # fmt: skip
EXPORT_CALLS = Patch(
    "torch", "torch.onnx._internal.exporter._core",
    ("_handle_call_function_node_with_lowering", "_set_node_metadata"),
    "know where ONNX nodes are written, and make the notes of an operator call once", _TORCH,
    is_optional=True,
)  # fmt: skip
EXPORT_NUMBERS = Patch(
    "torch", "torch.onnx._internal.fx.passes.type_promotion:_TypePromotionInterpreter",
    ("_maybe_promote_arg",), "make a tensor of a number that stands for one", _TORCH,
)  # fmt: skip
EXPORT_PROMOTION = Patch(
    "torch", EXPORT_NUMBERS.place, ("run_node",), "look at types without running operators again",
    _TORCH,
)  # fmt: skip
FOLDED_SHAPES = Patch(
    "onnxscript", "onnxscript.optimizer._constant_folding:FoldConstantsPass", ("_do_inference",),
    "infer shapes once for nodes that are alike", _ONNXSCRIPT,
)  # fmt: skip
FOLDED_VALUES = Patch(
    "onnxscript", "onnxscript.optimizer._constant_folding:ReferenceEvaluator", ("evaluate",),
    "compute constants once for nodes that are alike", _ONNXSCRIPT,
)  # fmt: skip
VERSION_CONVERTER = Patch(
    "onnxscript", "onnxscript.version_converter", ("convert_version",),
    "give a model that stays as it is the number of a newer set of operators", _ONNXSCRIPT,
)  # fmt: skip
WRITTEN_CODE = Patch(
    "torch", "torch.fx.graph", ("_format_target",), "write names of modules that are keywords",
    _TORCH,
)  # fmt: skip

# PyTorch: what `profile` watches in a training step.

WATCHED_CALLS = Patch(
    "torch", "torch.nn.modules.module:Module", ("__call__",),
    "see calls of parts of a model in a training step", _TORCH,
)  # fmt: skip
WATCHED_STATE = Patch(
    "torch", "torch.nn.modules.module:Module", ("__getstate__",),
    "keep the hooks of a watched step from copies of the model", _TORCH, in_text=False,
)  # fmt: skip
WATCHED_BACKWARD = Patch(
    "torch", "torch.autograd", ("_engine_run_backward",), "see when a backward pass runs", _TORCH,
    in_text=False,
)  # fmt: skip
EINSUM = Patch(
    "einops", "einops.einops", ("einsum",), "record einops.einsum as one call", "einops 0.8",
    is_optional=True,
)  # fmt: skip
BARS = Patch(
    "tqdm", "tqdm.std:tqdm", ("monitor_interval",), "start no thread beside the count",
    "tqdm 4.60 - 4.70",
)  # fmt: skip
REBUILT_WEIGHTS = Patch(
    "onnx2torch", "onnx2torch.onnx_tensor:OnnxTensor", ("to_numpy",),
    "make no copies of weights that are there by shape alone", "onnx2torch 1.5",
)  # fmt: skip
ONNX_MODULES = Patch(
    "onnx", "onnx", (ANY,), "execute modules of onnx when they are looked into",
    "onnx 1.21 - 1.23", is_added=True, in_text=False,
)  # fmt: skip
ONNX_ARRAYS = Patch(
    "onnx", "onnx.numpy_helper", ("to_array", "from_array"),
    "make no copies of weights that are one number", "onnx 1.21 - 1.23",
)  # fmt: skip

# TensorFlow, Keras and tf2onnx.

CONTROL_FLOW = Patch(
    "tensorflow", "tensorflow.python.framework.convert_to_constants", ("_CONTROL_FLOW_OPS",),
    "freeze a model with its choices whole", _TENSORFLOW,
)  # fmt: skip
GATHERS = Patch(
    "tensorflow", "tensorflow.python.framework.convert_to_constants:_ResourceGather",
    ("convert_variable_to_constant",), "gather from constants in branches and loops, too",
    _TENSORFLOW,
)  # fmt: skip
VARIABLE_COPIES = Patch(
    "tensorflow",
    "tensorflow.python.framework.convert_to_constants:_FunctionConverterDataInEager",
    ("_eval",), "copy no large variables into constants", _TENSORFLOW,
)  # fmt: skip
VARIABLE_PROTOS = Patch(
    "tensorflow", "tensorflow.python.framework.tensor_util", ("make_tensor_proto",),
    VARIABLE_COPIES.why, _TENSORFLOW,
)  # fmt: skip
RECOMPUTATION = Patch(
    "tensorflow", "tensorflow", ("recompute_grad",), "recompute functions with named arguments",
    _TENSORFLOW, in_text=False,
)  # fmt: skip
VARIABLE_READS = Patch(
    "tensorflow", "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable",
    ("_read_variable_op",), "derive a model by tensors in the place of its variables",
    _TENSORFLOW,
)  # fmt: skip
FUNCTION_CALLS = Patch(
    "tensorflow", "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function",
    ("__call__",), "trace functions of a model anew for its derivative", _TENSORFLOW,
)  # fmt: skip
SIGNATURE = Patch(
    "tensorflow", "tensorflow.saved_model", ("crossflops_signature",),
    "note which signature of a SavedModel was chosen", _TENSORFLOW, is_added=True, in_text=False,
)  # fmt: skip
NAME_SCOPES = Patch(
    "keras", "keras.src.backend.tensorflow.core:name_scope", ("__enter__",),
    "see which layer an operation is of", _KERAS,
)  # fmt: skip
KERAS_COPIES = Patch(
    "keras", "keras.src.saving.keras_saveable:KerasSaveable", ("__reduce__",),
    "copy layers by their attributes", _KERAS,
)  # fmt: skip
WEIGHTS = Patch(
    "keras", "keras.src.backend.tensorflow.core:Variable", ("_initialize_with_initializer",),
    "give large weights no memory", _KERAS,
)  # fmt: skip
BRANCHES = Patch(
    "tf2onnx", "tf2onnx.tfonnx", ("resolve_functions",),
    "read branches and bodies with the shapes that they are given", _TF2ONNX, in_text=False,
)  # fmt: skip
HANDLERS = Patch(
    "tf2onnx", "tf2onnx.tfonnx", ("tensorflow_onnx_mapping",),
    "see which operation becomes which nodes", _TF2ONNX,
)  # fmt: skip
FOLDING = Patch(
    "tf2onnx", "tf2onnx.tfonnx", ("compute_const_folding_using_tf",),
    "fold sizes and moved weights alone", _TF2ONNX, in_text=False,
)  # fmt: skip
REWRITERS = Patch(
    "tf2onnx", "tf2onnx.tfonnx", (ANY,), "keep operations that tf2onnx would join", _TF2ONNX,
    in_text=False,
)  # fmt: skip
GEMMS = Patch(
    "tf2onnx", "tf2onnx.rewriter.gemm_rewriter", ("GraphMatcher",),
    "make no Gemm of a product that others read", _TF2ONNX,
)  # fmt: skip
NAMES = Patch(
    "tf2onnx", "tf2onnx.utils", ("INTERNAL_NAME",), "name nodes alike in every run", _TF2ONNX
)
CONSTANTS = Patch(
    "tf2onnx", "tf2onnx.tf_utils", ("get_tf_tensor_data",), ONNX_ARRAYS.why, _TF2ONNX
)
TYPES = Patch("tf2onnx", "tf2onnx.tf_utils", ("TF_TO_ONNX_DTYPE",), "keep bfloat16", _TF2ONNX)
TYPE_NAMES = Patch(
    "tf2onnx", "tf2onnx.utils", ("ONNX_TO_NUMPY_DTYPE", "ONNX_DTYPE_NAMES"), TYPES.why, _TF2ONNX
)

# JAX, Flax and jax2onnx.

RESIZES = Patch(
    "jax", "jax._src.image.scale", ("_resize",), "name the method by which an image is resized",
    _JAX,
)  # fmt: skip
KERNELS = Patch(
    "jax", "jax._src.pallas.hlo_interpreter",
    ("loops", "_get_next_indices", "_dynamic_slice", "_dynamic_update_slice"),
    "write the grid of a Pallas kernel as a scan", _JAX,
)  # fmt: skip
KERNEL_PLACES = Patch(
    "jax", "jax._src.pallas.core:BlockMapping", ("compute_start_indices_interpret",),
    KERNELS.why, _JAX,
)  # fmt: skip
SCOPES = Patch(
    "flax", "flax.nnx:Module", (ANY,), "run methods in the scope of their module", "flax 0.12",
    in_text=False,
)  # fmt: skip
PATHS = Patch(
    "flax", "flax.nnx:Module", ("_crossflops_path",), "note the path of a module in it",
    "flax 0.12", is_added=True, in_text=False,
)  # fmt: skip
EQUATIONS = Patch(
    "jax2onnx", "jax2onnx.converter.lowering_dispatch",
    ("lower_equation_with_plugin", "get_registered_lowering_plugin"),
    "record every equation, and give one that fails another chance", _JAX2ONNX,
)  # fmt: skip
DEAD_STATES = Patch(
    "jax", "jax._src.interpreters.partial_eval", ("dce_rules",),
    "drop states of while loops that nothing reads, as XLA does", _JAX, in_text=False,
)  # fmt: skip
TRACES = Patch(
    "jax2onnx", "jax2onnx.converter.conversion_api",
    ("_trace_to_jaxpr", "_bind_closed_jaxpr_constants"),
    "convert only what a result depends on, and note weights", _JAX2ONNX,
)  # fmt: skip
OPTIMIZERS = Patch(
    "jax2onnx", "jax2onnx.converter.ir_optimizations", ("_OPTIMIZER_PASSES",),
    "remove nothing that computes", _JAX2ONNX,
)  # fmt: skip
BOUND_VALUES = Patch(
    "jax2onnx", "jax2onnx.converter.output_binding", ("_value_is_graph_connected",),
    "search no graph for a value that knows its node", _JAX2ONNX, is_optional=True,
)  # fmt: skip
NODE_SEARCHES = Patch(
    "jax2onnx", "jax2onnx.converter.ir_optimizations", ("_producer_node",), BOUND_VALUES.why,
    _JAX2ONNX, is_optional=True,
)  # fmt: skip
PRODUCTS = Patch(
    "jax2onnx", "jax2onnx.plugins.jax.lax.dot_general:DotGeneralPlugin",
    ("_try_lower_matmul", "_compute_einsum_labels"), "lower products as they are", _JAX2ONNX,
    is_optional=True,
)  # fmt: skip
FLAX_BATCH_NORMS = Patch(
    "jax2onnx", "jax2onnx.plugins.flax.nnx.batch_norm:BatchNormPlugin", ("_make_patch",),
    "normalize by the batch where the layer does", _JAX2ONNX, is_optional=True,
)  # fmt: skip
LINEN_BATCH_NORMS = Patch(
    "jax2onnx", "jax2onnx.plugins.flax.linen.batch_norm:BatchNormPlugin", ("_make_patch",),
    "normalize by the batch where the layer does", _JAX2ONNX, is_optional=True,
)  # fmt: skip
FLAX_RMS_NORMS = Patch(
    "jax2onnx", "jax2onnx.plugins.flax.nnx.rms_norm:RMSNormPlugin", ("_patch_call",),
    "take the mean square along the axes of the layer", _JAX2ONNX, is_optional=True,
)  # fmt: skip

# scikit-learn and skl2onnx.

ESTIMATORS = Patch(
    "scikit-learn", "sklearn", (ANY,), "convert a pipeline without the steps that do nothing",
    "scikit-learn 1.5 - 1.9", is_added=True, in_text=False,
)  # fmt: skip
PARSERS = Patch(
    "skl2onnx", "skl2onnx._parse", ("_parse_sklearn",),
    "take what `transform` gives of an estimator", _SKL2ONNX,
)  # fmt: skip
PIPELINE_PARSERS = Patch(
    "skl2onnx", "skl2onnx.operator_converters.pipelines", ("_parse_sklearn",), PARSERS.why,
    _SKL2ONNX,
)  # fmt: skip
PIPELINE_OPTIONS = Patch(
    "skl2onnx", "skl2onnx.operator_converters.pipelines", ("is_classifier",),
    "give no step an option that it has not", _SKL2ONNX,
)  # fmt: skip
NODES = Patch(
    "skl2onnx", "skl2onnx.common._container", ("make_node",), "write truth values as integers",
    _SKL2ONNX,
)  # fmt: skip
CLUSTERS = Patch(
    "skl2onnx", "skl2onnx.operator_converters.k_means", ("OnnxGemm",),
    "let KMeans take any number of rows", _SKL2ONNX,
)  # fmt: skip
CALIBRATIONS = Patch(
    "skl2onnx", "skl2onnx.operator_converters.calibrated_classifier_cv", ("_transform_isotonic",),
    "interpolate isotonic calibrations", _SKL2ONNX,
)  # fmt: skip
GAUSSIAN_KERNELS = Patch(
    "skl2onnx", "skl2onnx.operator_converters._gp_kernels", ("convert_kernel",),
    "know the nodes of kernels that multiply nothing", _SKL2ONNX,
)  # fmt: skip
GAUSSIAN_PROCESSES = Patch(
    "skl2onnx", "skl2onnx.operator_converters.gaussian_process", ("convert_kernel",),
    GAUSSIAN_KERNELS.why, _SKL2ONNX,
)  # fmt: skip
OPERATORS = Patch(
    "skl2onnx", "skl2onnx.algebra.onnx_operator:OnnxOperator", ("add_to",),
    GAUSSIAN_KERNELS.why, _SKL2ONNX,
)  # fmt: skip
CONVERTERS = Patch(
    "skl2onnx", "skl2onnx.common._topology:Topology", ("call_converter",),
    "see which estimator a node is of", _SKL2ONNX,
)  # fmt: skip
SCOPES_OF_ESTIMATORS = Patch(
    "skl2onnx", "skl2onnx.common._topology:Scope", ("declare_local_operator",), CONVERTERS.why,
    _SKL2ONNX,
)  # fmt: skip
ESTIMATOR_NAMES = Patch(
    "skl2onnx", "skl2onnx._supported_operators", ("sklearn_operator_name_map",),
    "write models of XGBoost, LightGBM and CatBoost", _SKL2ONNX,
)  # fmt: skip
ESTIMATOR_CONVERTERS = Patch(
    "skl2onnx", "skl2onnx.common._registration", ("_converter_pool",), ESTIMATOR_NAMES.why,
    _SKL2ONNX,
)  # fmt: skip
ESTIMATOR_SHAPES = Patch(
    "skl2onnx", "skl2onnx.common._registration", ("_shape_calculator_pool",), ESTIMATOR_NAMES.why,
    _SKL2ONNX,
)  # fmt: skip
ESTIMATOR_PARSERS = Patch(
    "skl2onnx", "skl2onnx._parse", ("sklearn_parsers_map",), ESTIMATOR_NAMES.why, _SKL2ONNX,
)  # fmt: skip

# Tools, patched by their plugins.

PTFLOPS_SUMS = Patch(
    "ptflops", "ptflops.pytorch_engine", ("compute_average_flops_cost",),
    "read what ptflops counts for each module", "ptflops 0.7.5", in_text=False,
)  # fmt: skip
PTFLOPS_MODE = Patch(
    "ptflops", "ptflops.aten_engine", ("FlopCounterMode",), PTFLOPS_SUMS.why, "ptflops 0.7.5"
)
NUMPY_LONG = Patch(
    "numpy", "numpy", ("long",), "let torchstat find the type that NumPy 1.24 took away",
    "numpy 1.26 - 2.4", is_added=True, in_text=False,
)  # fmt: skip

PATCHES: tuple[Patch, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Patch)
)
