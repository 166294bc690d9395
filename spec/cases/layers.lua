--- The layers of accelhost.nn, a row each, for specs and scripts/fixtures/modules (which reads them by
--- scripts/spec_cases.lua); activations and losses are in their own files. A list of rows is named after the file of
--- its cases, spec/fixtures/modules/NAME.json.
--
--   {"Name", arguments, inputs, ...}: arguments of the constructor, and inputs that fit
--   options      option -> another value, where a rule does not find one that changes the layer: a value, or a table
--                of arguments and options with it
--   inputs_of    option -> inputs that fit the layer with this option only
--   train        options of a layer that is trained on several devices
--   make         function(options): makes that layer where arguments and options do not suffice
--   train_inputs its inputs, if they are others
--   drawn        false: scripts/compare makes none. It draws others by these rows, or by its own
--   devices      false: it computes on the CPU alone
--   ignored      options that are accepted for the sake of scripts and change nothing
--   cases        {arguments as text, inputs as in scripts/fixtures/modules, eval, first_only}: PyTorch's outputs, state
--                and gradients are in the fixture
local accelhost = require "accelhost"
local inputs = require "spec.cases.inputs"
local nn = accelhost.nn

local long, images, rows = inputs.long, inputs.images, inputs.rows
local logits, classes = inputs.logits, inputs.classes
local volumes, cubes = images:unsqueeze(2), images:view(1, 2, 4, 6, 6)
local pair = accelhost.tensor {1.5, -0.5}

local tracked = {affine = true, track_running_stats = true}
local instance = {momentum = {track_running_stats = true, momentum = 0.5}, bias = {affine = true, bias = false},
  dtype = {affine = true, dtype = "float64"}}
local conv = {groups = 2, padding = 1}
local transposed = {groups = 2, padding = 1, output_padding = {stride = 2, output_padding = 1}}
local unpool = {stride = 3, padding = 1}

local layers = {activations = require "spec.cases.activations", losses = require "spec.cases.losses"}

layers.linear = {
  {"Identity", {}, {rows}},
  {"Linear", {8, 3}, {rows}},
  {"NonDynamicallyQuantizableLinear", make = function(o) return nn.NonDynamicallyQuantizableLinear(8, 3, o) end,
    train_inputs = {rows}},
  {"Bilinear", {8, 8, 3}, {rows, rows}},
  {"Sequential", make = function(o) return nn.Sequential(nn.Linear(8, 4, o), nn.ReLU(), nn.Linear(4, 2, o)) end,
    train_inputs = {rows}},
  {"LinearCrossEntropyLoss", {8, 5}, {logits, classes}, drawn = false, ignored = {options = true},
    inputs_of = {out_features = {logits, classes:unsqueeze(1):tile(1, 2)}},
    options = {out_features = {{2}}, weight = accelhost.tensor {1, 2, 3, 4, 5}, ignore_index = 3,
      label_smoothing = 0.1},
    cases = {
      {"4, 9", "7,4", "int 9 7"}, {"4, 9, {bias = true, reduction = 'sum', label_smoothing = 0.1}", "7,4", "rand 7,9"},
      {"4, 9, {out_features = {2, 3}, reduction = 'none', ignore_index = 2}", "5,4", "int 9 5,2,3"},
      {"4, 9", "4", "int 9 "},
    }},
  {"AdaptiveLogSoftmaxWithLoss", {8, 5, {2}}, {logits, classes}, train_inputs = {logits, long {0, 8, 3, 1}},
    make = function(o) return nn.AdaptiveLogSoftmaxWithLoss(8, 9, {2, 5}, 2, o) end},
}

layers.convolutions = {
  {"Conv1d", {4, 4, 3}, {rows}, options = conv},
  {"Conv2d", {4, 4, 3}, {images}, options = conv},
  {"Conv3d", {4, 4, {1, 3, 3}}, {volumes}, options = conv,
    cases = {
      {"2, 3, 2", "1,2,3,2,3"},
      {"2, 4, {3, 2, 1}, {stride = {2, 1, 1}, padding = {1, 0, 1}, dilation = {1, 2, 1}, groups = 2}", "2,2,5,4,3"},
      {"2, 3, {2, 3, 2}, {padding = 'same', bias = false}", "2,3,3,4"},
      {"1, 2, 2, {padding = 1, padding_mode = 'circular'}", "1,1,2,3,2"}, {"1, 2, 2, {padding = 'valid'}", "1,1,2,3,2"},
    }},
  {"ConvTranspose3d", {4, 4, 3}, {volumes}, options = transposed,
    cases = {
      {"2, 3, 2", "1,2,2,3,2"},
      {"2, 4, {3, 2, 2}, {stride = {2, 1, 2}, padding = {1, 0, 1}, output_padding = {1, 0, 1}, groups = 2, "
        .. "dilation = {1, 2, 1}}", "2,2,3,2,3"},
      {"2, 3, 2, {stride = 2, bias = false}", "2,2,1,3"},
    }},
  {"ConvTranspose1d", {4, 4, 3}, {rows}, options = transposed,
    cases = {{"2, 3, 3, {stride = 2, padding = 1}", "2,2,4"}}},
  {"ConvTranspose2d", {4, 4, 3}, {images}, options = transposed},
}

layers.norms = {
  {"BatchNorm3d", {4}, {volumes}, cases = {{"3", "2,3,2,2,2"}}},
  {"BatchNorm1d", {4}, {rows}, cases = {{"3, {bias = false}", "4,3"}}},
  {"BatchNorm2d", {4}, {images}},
  {"SyncBatchNorm", {4}, {images}, drawn = false, cases = {{"3", "4,3", eval = true}}},
  {"InstanceNorm1d", {4}, {rows}, options = instance, train = tracked,
    cases = {{"3", "2,3,4"}, {"3, {affine = true}", "3,4"}}},
  {"InstanceNorm2d", {4}, {images}, options = instance, train = tracked,
    cases = {
      {"3, {affine = true, track_running_stats = true, momentum = 0.3}", "2,3,2,2"},
      {"3, {affine = true, track_running_stats = true}", "2,3,2,2", eval = true},
    }},
  {"InstanceNorm3d", {4}, {volumes}, options = instance, train = tracked,
    cases = {{"2, {eps = 0.1}", "2,2,2,2,2"}}},
  {"RMSNorm", {8}, {rows},
    cases = {{"4", "2,3,4"}, {"{3, 4}, {eps = 0.1}", "2,3,4"}, {"4, {elementwise_affine = false}", "2,3,4"}}},
  {"LocalResponseNorm", {2}, {rows}, cases = {{"2", "2,5,3"}, {"3, {alpha = 0.5, beta = 0.6, k = 1.5}", "2,5,3,2"}}},
  {"LayerNorm", {8}, {rows}},
  {"GroupNorm", {2, 4}, {rows}, cases = {{"2, 4, {bias = false}", "2,4,3"}}},
}

layers.embeddings = {
  {"Embedding", {9, 3}, {classes}, train = {padding_idx = 1},
    options = {padding_idx = 1, max_norm = 0.5, norm_type = 1, _weight = accelhost.ones(9, 3), _freeze = true},
    cases = {
      {"5, 3, {padding_idx = 1}", "int 5 2,4"}, {"5, 3, {max_norm = 1.5, scale_grad_by_freq = true}", "int 5 2,4"},
      {"5, 3, {max_norm = 1.25, norm_type = 1, padding_idx = -1}", "int 5 6"},
    }},
  {"EmbeddingBag", {9, 3}, {classes, long {0, 2}}, train = {padding_idx = 1, mode = "max", max_norm = 1},
    options = {padding_idx = 1, max_norm = 0.5, norm_type = 1, _weight = accelhost.ones(9, 3)},
    cases = {
      {"5, 3", "int 5 2,4"}, {"5, 3, {padding_idx = 2}", "int 5 3,4"},
      {"5, 3, {mode = 'sum', padding_idx = 0}", "int 5 3,4"}, {"5, 3, {mode = 'max', padding_idx = 3}", "int 5 3,4"},
      {"5, 3, {max_norm = 1.5, scale_grad_by_freq = true, mode = 'sum'}", "int 5 3,4"},
    }},
}

layers.dropouts = {
  {"Dropout", {}, {rows}},
  {"Dropout1d", {}, {rows}},
  {"Dropout2d", {}, {images}},
  {"Dropout3d", {}, {volumes}, cases = {{"0.4", "2,4,2,1,2"}, {"0.4", "4,2,1,2"}}},
  {"AlphaDropout", {}, {rows}, cases = {{"0.3", "4,5"}, {"0.3", "4,5", eval = true}}},
  {"FeatureAlphaDropout", {}, {rows}, cases = {{"0.5", "2,4,3"}}},
}

layers.pools = {
  {"MaxPool3d", {3}, {cubes},
    options = {padding = 1, dilation = {2, dilation = 2}, ceil_mode = {4, 3, ceil_mode = true}},
    cases = {
      {"2", "1,2,4,2,3"}, {"{2, 3, 1}, 1, {padding = {1, 1, 0}}", "1,2,3,3,2"},
      {"2, 2, {ceil_mode = true, return_indices = true}", "1,2,3,3,3"},
      {"2, 1, {dilation = 2, return_indices = true, padding = 1}", "2,3,3,3"},
    }},
  {"MaxPool1d", {2}, {rows}, options = {stride = 1, padding = 1, ceil_mode = {3, 2, ceil_mode = true}},
    cases = {{"2, {return_indices = true}", "2,3,5"}}},
  {"MaxPool2d", {3}, {images}, options = {padding = 1, ceil_mode = {5, 2, ceil_mode = true}}},
  {"AvgPool3d", {3}, {cubes}, options = {padding = 1, ceil_mode = {4, 3, ceil_mode = true},
    count_include_pad = {3, padding = 1, count_include_pad = false}},
    cases = {
      {"2", "1,2,4,2,3"}, {"{2, 3, 1}, {2, 1, 2}, {padding = {1, 1, 0}, ceil_mode = true}", "1,2,4,3,4"},
      {"3, 2, {padding = 1, ceil_mode = true, count_include_pad = false}", "2,4,3,4"},
      {"2, 1, {padding = 1, divisor_override = 3}", "1,2,2,2,2"},
    }},
  {"AvgPool2d", {3}, {images}, options = {padding = 1, ceil_mode = {5, 2, ceil_mode = true},
    count_include_pad = {3, padding = 1, count_include_pad = false}},
    cases = {{"2, 1, {divisor_override = 3}", "1,2,3,3"}}},
  {"AvgPool1d", {2}, {rows}, options = {stride = 1, padding = 1, ceil_mode = {3, 2, ceil_mode = true},
    count_include_pad = {2, padding = 1, count_include_pad = false}}},
  {"AdaptiveAvgPool1d", {3}, {rows}},
  {"AdaptiveAvgPool2d", {3}, {images}},
  {"AdaptiveAvgPool3d", {3}, {cubes}, cases = {{"2", "1,2,3,4,2"}, {"{2, 1, 3}", "2,3,4,5"}}},
  {"AdaptiveMaxPool1d", {2}, {rows}, cases = {{"3", "2,3,7"}, {"2, {return_indices = true}", "3,4"}}},
  {"AdaptiveMaxPool2d", {2}, {images}, cases = {{"{2, 3}, {return_indices = true}", "1,2,5,7"}, {"2", "2,4,4"}}},
  {"AdaptiveMaxPool3d", {2}, {cubes}, cases = {{"{2, 1, 3}, {return_indices = true}", "1,2,3,4,5"}}},
  {"LPPool1d", {2, 2}, {rows}, options = {ceil_mode = {2, 3, {ceil_mode = true}}}, cases = {{"3, 2", "rand 1,2,6"}}},
  {"LPPool2d", {2, 2}, {images}, options = {ceil_mode = {2, 5, {ceil_mode = true}}},
    cases = {{"2, {2, 3}, 1", "1,2,4,4"}}},
  {"LPPool3d", {2, 2}, {cubes}, options = {ceil_mode = {2, 4, {ceil_mode = true}}},
    cases = {{"1.5, 2, {ceil_mode = true}", "rand 1,2,3,3,2"}}},
  {"MaxUnpool1d", {2}, {rows, accelhost.zeros({2, 4, 8}, {dtype = "int64"})}, options = unpool, drawn = false,
    train_inputs = {pair:view(1, 1, 2), long {{{1, 3}}}}},
  {"MaxUnpool2d", {2}, {images, accelhost.zeros({2, 4, 6, 6}, {dtype = "int64"})}, options = unpool, drawn = false,
    train_inputs = {pair:view(1, 1, 1, 2), long {{{{4, 2}}}}}},
  {"MaxUnpool3d", {2}, {cubes, accelhost.zeros({1, 2, 4, 6, 6}, {dtype = "int64"})}, options = unpool, drawn = false,
    train_inputs = {pair:view(1, 1, 1, 1, 2), long {{{{{4, 2}}}}}}},
  {"FractionalMaxPool2d", {2, 3}, {images}, options = {output_size = {2, output_size = 2},
    output_ratio = {2, output_ratio = 0.5}, _random_samples = accelhost.full({2, 4, 2}, 0.3)},
    make = function(o)
      return nn.FractionalMaxPool2d(2, {output_size = 3, _random_samples = accelhost.full({2, 4, 2}, 0.6, o)})
    end,
    cases = {
      {"2, {output_size = {3, 2}, return_indices = true}", "1,2,6,5"}, {"{2, 1}, {output_ratio = 0.5}", "2,6,5"},
    }},
  {"FractionalMaxPool3d", {2, 2}, {cubes}, options = {output_size = {2, output_size = 3},
    output_ratio = {2, output_ratio = 0.5}, _random_samples = accelhost.full({1, 2, 3}, 0.3)},
    make = function(o)
      return nn.FractionalMaxPool3d(2, {output_ratio = 0.5, _random_samples = accelhost.full({1, 2, 3}, 0.6, o)})
    end, cases = {{"2, {output_size = {1, 3, 2}, return_indices = true}", "1,2,3,6,5"}}},
}

layers.shapes = {
  {"Upsample", {}, {images}, train = {scale_factor = 1.5, mode = "bicubic"}, options = {
    mode = {size = 3, mode = "bicubic"}, align_corners = {size = 3, mode = "bilinear", align_corners = true},
    recompute_scale_factor = {scale_factor = 1.3, mode = "bilinear", recompute_scale_factor = true},
  }},
  {"UpsamplingNearest2d", {}, {images}, train = {size = 3}},
  {"UpsamplingBilinear2d", {}, {images}, train = {size = 3}},
  {"Unfold", {2}, {images}},
  {"Fold", {4, 2}, {accelhost.linspace(0, 1, 36):view(1, 4, 9)}, inputs_of = {
    dilation = {accelhost.ones(1, 4, 4)}, stride = {accelhost.ones(1, 4, 4)}, padding = {accelhost.ones(1, 4, 49)},
  }},
  {"PixelShuffle", {2}, {images}},
  {"PixelUnshuffle", {2}, {images}},
  {"ChannelShuffle", {2}, {images}},
  {"Flatten", {}, {rows}, options = {start_dim = 0, end_dim = 1}},
  {"Unflatten", {1, {2, 2}}, {rows}},
}

layers.paddings = {
  {"ConstantPad1d", {1, 3}, {rows}, cases = {{"2, 3.5", "2,3,4"}}},
  {"ConstantPad2d", {1, 3}, {images}, cases = {{"{1, 2, 0, 1}, 0.5", "2,3,4"}}},
  {"ConstantPad3d", {1, 3}, {cubes}, cases = {{"{1, 0, 0, 1, 2, -1}, 2", "2,3,2,2"}}},
  {"ZeroPad1d", {1}, {rows}, cases = {{"{1, 2}", "2,3"}}},
  {"ZeroPad2d", {1}, {images}, cases = {{"1", "2,2,3"}}},
  {"ZeroPad3d", {1}, {cubes}, cases = {{"1", "1,2,2,1,2"}}},
  {"ReflectionPad1d", {1}, {rows}, cases = {{"2", "2,3,4"}}},
  {"ReflectionPad2d", {1}, {images}, cases = {{"{1, 1, 2, 0}", "2,3,4"}}},
  {"ReflectionPad3d", {1}, {cubes}, cases = {{"1", "2,2,3,2"}}},
  {"ReplicationPad1d", {1}, {rows}, cases = {{"{3, 1}", "2,4"}}},
  {"ReplicationPad2d", {1}, {images}, cases = {{"1", "1,2,3,4"}}},
  {"ReplicationPad3d", {1}, {cubes}, cases = {{"{1, 0, 2, 0, 1, 1}", "1,2,2,3,2"}}},
  {"CircularPad1d", {1}, {rows}, cases = {{"2", "2,4"}}},
  {"CircularPad2d", {1}, {images}, cases = {{"{1, 2, 0, 1}", "1,2,3,4"}}},
  {"CircularPad3d", {1}, {cubes}, cases = {{"1", "1,2,2,3,2"}}},
}

layers.transformers = {
  {"MultiheadAttention", {8, 2}, {rows, rows, rows}, train = {batch_first = true, add_bias_kv = true,
    add_zero_attn = true}, options = {kdim = {8, 2, {kdim = 4}}, vdim = {8, 2, {vdim = 4}}},
    inputs_of = {kdim = {rows, rows:narrow(2, 0, 4), rows}, vdim = {rows, rows, rows:narrow(2, 0, 4)}}},
  {"Transformer", {8, 2, 1, 1, 16}, {rows, rows * 0.5}, options = {
    custom_encoder = nn.TransformerEncoder(nn.Identity(), 0), custom_decoder = nn.TransformerDecoder(nn.Identity(), 0),
  },
    cases = {
      {"4, 2, 1, 2, 6, 0", "3,2,4", "2,2,4"},
      {"4, 2, 2, 1, 6, 0, {activation = 'gelu', batch_first = true, norm_first = true, bias = false}", "2,3,4",
        "2,2,4"},
    }},
  {"TransformerEncoderLayer", {8, 2}, {rows}, train = {dim_feedforward = 16, batch_first = true}},
  {"TransformerEncoder", train_inputs = {rows}, make = function(o)
    return nn.TransformerEncoder(function()
      return nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, device = o.device})
    end, 2)
  end, cases = {{"nn.TransformerEncoderLayer(4, 2, 6, 0.2), 2, {norm = nn.LayerNorm(4)}", "3,2,4", first_only = true}}},
  {"TransformerDecoderLayer", {8, 2}, {rows, rows * 0.5}, train = {dim_feedforward = 16},
    cases = {{"4, 1, 3, 0.3, {norm_first = true, layer_norm_eps = 0.1}", "2,2,4", "3,2,4", first_only = true}}},
  {"TransformerDecoder", {nn.TransformerDecoderLayer(8, 2), 2}, {rows, rows * 0.5},
    options = {norm = nn.LayerNorm(8)}, make = function(o)
      return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16, device = o.device}), 2)
    end, cases = {{"nn.TransformerDecoderLayer(4, 2, 6, 0), 2", "2,4", "3,4"}}},
}

layers.recurrent = {
  {"RNN", {8, 3}, {rows}, options = {dropout = {num_layers = 2, dropout = 0.5}}, train = {num_layers = 2}},
  {"LSTM", {8, 3}, {rows}, options = {dropout = {num_layers = 2, dropout = 0.5}}, train = {bidirectional = true}},
  {"GRU", {8, 3}, {rows}, options = {dropout = {num_layers = 2, dropout = 0.5}}, train = {num_layers = 2}},
  {"RNNCell", {8, 3}, {logits}},
  {"LSTMCell", {8, 3}, {logits}},
  {"GRUCell", {8, 3}, {logits}, train_inputs = {logits, inputs.other:narrow(1, 0, 3)}},
}

local long_rows = (accelhost.arange(3 * 256) * 0.37):sin():view(3, 256)

-- Their numbers are bitsandbytes' (spec/models/quantized_spec.lua).
layers.quantized = {
  {"Linear8bitLt", {8, 3}, {rows}, drawn = false, devices = false, ignored = {threshold = true}},
  {"Linear4bit", {256, 3}, {long_rows}, drawn = false, devices = false, options = {compute_dtype = "bfloat16"}},
}

-- Their numbers are those of the plain layers (spec/nn/lazy_spec.lua).
layers.lazy = {
  {"LazyLinear", {3}, {rows}, drawn = false},
  {"LazyConv1d", {4, 3}, {rows}, options = conv, drawn = false},
  {"LazyConv2d", {4, 3}, {images}, options = conv, drawn = false},
  {"LazyConv3d", {4, {1, 3, 3}}, {volumes}, options = conv, drawn = false},
  {"LazyConvTranspose1d", {4, 3}, {rows}, options = transposed, drawn = false},
  {"LazyConvTranspose2d", {4, 3}, {images}, options = transposed, drawn = false},
  {"LazyConvTranspose3d", {4, 3}, {volumes}, options = transposed, drawn = false},
  {"LazyBatchNorm1d", {}, {rows}, drawn = false},
  {"LazyBatchNorm2d", {}, {images}, drawn = false},
  {"LazyBatchNorm3d", {}, {volumes}, drawn = false},
  {"LazyInstanceNorm1d", {}, {rows}, drawn = false},
  {"LazyInstanceNorm2d", {}, {images}, drawn = false},
  {"LazyInstanceNorm3d", {}, {volumes}, drawn = false},
}

--- All rows by name.
layers.by_name = {}
for subject, list in pairs(layers) do
  if subject ~= "by_name" then
    for _, row in ipairs(list) do
      row.name, row.arguments, row.inputs = row[1], row[2], row[3]
      layers.by_name[row.name] = row
    end
  end
end

return layers
