"""The probes that some checks of the kit take, by name."""

# Probes that do other work in training, or might.
TRAINED = (
    "bn2d",
    "bn2d_noaffine",
    "conv_bn_relu",
    "nn.Dropout",
    "nn.PReLU",
    "LSTM_1l",
    "MHA_weights",
)
# Probes whose parameters are shared, frozen, in no layer, or in one that is not called.
PARAMETERS = (
    "frozen_weight",
    "bare_parameter",
    "lists_in_turns",
    "pruned_conv",
    "tied_weight_two_modules",
    "shared_two_names",
    "shared_two_parents",
    "unused_submodule",
    "direct_forward",
    "subclassed_conv",
    "conv_bn_relu",
    "MHA_weights",
    "LSTM_2l_bi",
)
