--- accelhost.nn: layers, containers and losses, which are modules; parameters.
--
--   local nn = accelhost.nn
--   local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local module = require "accelhost.nn.module"
local namespace = require "accelhost.util.namespace"
local parameter = require "accelhost.nn.parameter"

local nn = {
  Module = module.Module,
  is_module = module.is_module,
  Parameter = parameter.new,
  is_parameter = parameter.is_parameter,
}

-- File -> the names that it defines.
local files = {
  linear = {"Identity", "Linear", "NonDynamicallyQuantizableLinear", "Bilinear"},
  quantized = {"Linear8bitLt", "Linear4bit"},
  conv = {"Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"},
  batch_norm = {
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
  },
  lazy = {
    "LazyLinear", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d",
  },
  sync_batch_norm = {"SyncBatchNorm"},
  norm = {"LayerNorm", "RMSNorm", "GroupNorm", "LocalResponseNorm"},
  embedding = {"Embedding", "EmbeddingBag"},
  distance = {"CosineSimilarity", "PairwiseDistance"},
  dropout = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"},
  padding = {
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "CircularPad1d",
    "CircularPad2d", "CircularPad3d",
  },
  pooling = {
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "FractionalMaxPool2d",
    "FractionalMaxPool3d",
  },
  adaptive = {"AdaptiveLogSoftmaxWithLoss"},
  resize = {
    "Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d", "Unfold", "Fold", "PixelShuffle", "PixelUnshuffle",
    "ChannelShuffle",
  },
  shape = {"Flatten", "Unflatten"},
  activation = {
    "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "ELU", "Softplus", "Softmax", "LogSoftmax", "Hardtanh",
    "ReLU6", "CELU", "SELU", "Mish", "Hardswish", "Hardsigmoid", "Threshold", "RReLU", "LogSigmoid", "Softsign",
    "Tanhshrink", "Hardshrink", "Softshrink", "GLU", "Softmin", "Softmax2d", "PReLU",
  },
  linear_loss = {"LinearCrossEntropyLoss"},
  container = {"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"},
  attention = {"MultiheadAttention"},
  recurrent = {"RNNBase", "RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"},
  transformer = {
    "Transformer", "TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "TransformerDecoder",
  },
  loss = {
    "CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss",
    "KLDivLoss", "MarginRankingLoss", "HingeEmbeddingLoss", "SoftMarginLoss", "CosineEmbeddingLoss",
    "MultiMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss", "PoissonNLLLoss", "GaussianNLLLoss", "CTCLoss",
  },
}

local lazy = {
  functional = {"accelhost.nn.functional"},
  init = {"accelhost.nn.initializers"},
  utils = {"accelhost.nn.utils"},
  parallel = {"accelhost.distributed.nn"}, -- PyTorch has DistributedDataParallel there
}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.nn." .. file, names) end

-- Names of PyTorch that are absent, with the alternative.
local refused = {
  DataParallel = "accelerator:prepare spreads a model over processes", NLLLoss2d = "NLLLoss accepts any number of dims",
  CrossMapLRN2d = "LocalResponseNorm is the same", Buffer = "module:register_buffer(name, tensor) makes one",
  CrossEntropy = "nn.CrossEntropyLoss",
  MSE = "nn.MSELoss", Conv = "nn.Conv1d, nn.Conv2d, nn.Conv3d",
  LinearCrossEntropyLoss = "use Linear and CrossEntropyLoss", Container = "use Sequential, ModuleList or ModuleDict",
}
return namespace.new("nn", nn, lazy, {refused = refused})
