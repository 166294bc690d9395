--- accelhost.nn.functional: functions without state, for `forward` and for losses.
--
--   local F = accelhost.nn.functional
--   F.cross_entropy(net(x), labels, {label_smoothing = 0.1}):dim()  --> 0
--
-- Options are positional in PyTorch's order or named in one trailing table. Functions that PyTorch also has in torch
-- (relu, softmax, dropout) are documented on the page of accelhost.

-- Names that the op table marks functional are its ops; those of the files below are compositions of ops, loaded when
-- a name is first used.
local C = require "accelhost._C"
local namespace = require "accelhost.util.namespace"

-- File -> the names that it defines.
local files = {
  activation = {
    "relu6", "relu6_", "selu", "selu_", "celu", "celu_", "mish", "mish_", "threshold", "threshold_", "rrelu", "rrelu_",
    "logsigmoid", "softsign", "tanhshrink", "prelu", "glu", "softmin", "gumbel_softmax",
    "relu", "silu", "hardswish", "hardsigmoid", "leaky_relu", "elu", "hardtanh", "dropout",
  },
  attention = {"multi_head_attention_forward"},
  conv = {"conv1d", "conv2d", "conv3d", "conv_transpose3d"},
  ctc = {"ctc_loss"},
  distance = {"normalize", "cosine_similarity", "pairwise_distance", "pdist"},
  dropout = {"dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"},
  embedding = {"embedding", "embedding_bag"},
  linear = {"bilinear"},
  linear_loss = {"linear_cross_entropy"},
  loss = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "gaussian_nll_loss"},
  margin = {
    "margin_ranking_loss", "hinge_embedding_loss", "soft_margin_loss", "cosine_embedding_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
  },
  norm = {"instance_norm", "local_response_norm"},
  grid = {"grid_sample", "affine_grid"},
  pad = {"pad"},
  pool = {
    "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d",
  },
  varlen = {"varlen_attn"},
  unpool = {"max_unpool1d", "max_unpool2d", "max_unpool3d", "fractional_max_pool2d", "fractional_max_pool3d"},
  patches = {"unfold", "fold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"},
  resize = {"interpolate", "upsample", "upsample_nearest", "upsample_bilinear"},
}

local lazy = {}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.nn.functional." .. file, names) end

--- The op of this name, if the table lists it as functional ("relu", or "relu_" in place).
local function op(name)
  local info = C.op_info(name) or C.op_info((name:gsub("_$", "")))
  return info and info.functional and C[name] or nil
end

return namespace.new("nn.functional", {}, lazy, {
  find = op,
  names = function()
    local list = {}
    for name in pairs(C) do
      if op(name) then list[#list + 1] = name end
    end
    return list
  end,
})
