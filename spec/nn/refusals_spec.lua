--- The errors of layers and functions for arguments that do not fit.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local tensors = require "spec.support.tensors"

local nn, F = accelhost.nn, accelhost.nn.functional

describe("A wrong argument is reported as", function()
  local zeros = accelhost.zeros
  local long = tensors.long
  for message, call in pairs {
    ["Hardtanh: max_val: expected a number above min_val = 1, got 1"] = function() nn.Hardtanh(1, 1) end,
    ["LPPool2d: norm_type: expected a number other than 0"] = function() nn.LPPool2d(0, 2) end,
    ["FractionalMaxPool2d: output_ratio: expected numbers between 0 and 1, got 1.5"] = function()
      nn.FractionalMaxPool2d(2, {output_ratio = {0.5, 1.5}})
    end,
    ["MultiMarginLoss: p: expected 1 or 2, got 3"] = function() nn.MultiMarginLoss {p = 3} end,
    ["MultiMarginLoss: weight: expected a tensor of 1 dim, got a tensor of shape (2, 2)"] = function()
      nn.MultiMarginLoss {weight = zeros(2, 2)}
    end,
    ["Bilinear: in1_features: expected an integer of at least 1, got number 0"] = function() nn.Bilinear(0, 2, 3) end,
    ["batch_norm: eps: expected a number above 0 in training, got 0"] = function()
      nn.BatchNorm1d(3, {eps = 0})(zeros(2, 3))
    end,
    ["batch_norm: eps: expected a number above 0 in training, got -1"] = function()
      nn.SyncBatchNorm(3, {eps = -1})(zeros(2, 3))
    end,
    ["glu: expected an even size of dim 1, got input (2, 3)"] = function() F.glu(zeros(2, 3), 1) end,
    ["celu: alpha: expected a number other than 0"] = function() F.celu(zeros(2), 0) end,
    ["rrelu: expected lower <= upper, got 0.5 and 0.25"] = function() F.rrelu(zeros(2), 0.5, 0.25) end,
    ["prelu: weight: expected 1 number or one for each of 3 channels, got shape (2,)"] = function()
      F.prelu(zeros(2, 3), zeros(2))
    end,
    ["Softmax2d: expected an input of 3 or 4 dims, got 2"] = function() nn.Softmax2d()(zeros(2, 3)) end,
    ["Softmin: 'dim' is missing"] = function() nn.Softmin()(zeros(2)) end,
    ["instance_norm: expected more than 1 value per channel, got input (2, 3, 1)"] = function()
      F.instance_norm(zeros(2, 3, 1))
    end,
    ["InstanceNorm2d: expected an input of 4 channels, got 3"] = function()
      nn.InstanceNorm2d(4, {affine = true})(zeros(1, 3, 2, 2))
    end,
    ["BatchNorm3d: expected an input of 5 dims, got 4"] = function() nn.BatchNorm3d(2)(zeros(1, 2, 2, 2)) end,
    ["ConstantPad2d: padding: expected an integer or a table of 4, got 3"] = function()
      nn.ConstantPad2d({1, 2, 3}, 0)
    end,
    ["CircularPad2d: expected an input of 3 or 4 dims, got (2, 3)"] = function() nn.CircularPad2d(1)(zeros(2, 3)) end,
    ["multi_margin_loss: target 4 is outside 0..3"] = function() F.multi_margin_loss(zeros(2, 4), long {0, 4}) end,
    ["multi_margin_loss: p: expected 1 or 2, got 3"] = function()
      F.multi_margin_loss(zeros(2, 4), long {0, 1}, 3)
    end,
    ["multilabel_margin_loss: expected a target of the input's shape (2, 4), got (2, 3)"] = function()
      F.multilabel_margin_loss(zeros(2, 4), long {{0, 1, 2}, {0, 1, 2}})
    end,
    ["gaussian_nll_loss: var: shape (2,) does not fit input (3, 4)"] = function()
      F.gaussian_nll_loss(zeros(3, 4), zeros(3, 4), zeros(2))
    end,
    ["gaussian_nll_loss: var: expected no number below 0"] = function()
      F.gaussian_nll_loss(zeros(2), zeros(2), accelhost.tensor {1, -1})
    end,
    ["mse_loss: weight: expected the input's shape (2,), got (1,)"] = function()
      F.mse_loss(zeros(2), zeros(2), {weight = zeros(1)})
    end,
    ["MarginRankingLoss: expected 3 arguments, got 4"] = function()
      nn.MarginRankingLoss()(zeros(2), zeros(2), zeros(2), zeros(2))
    end,
    ["hinge_embedding_loss: 'target' is missing"] = function() nn.HingeEmbeddingLoss()(zeros(2)) end,
    ["feature_alpha_dropout: expected an input of at least 2 dims, got 1"] = function()
      F.feature_alpha_dropout(zeros(2), {training = true})
    end,
    ["conv3d: expected input (N, C, D, H, W) or (C, D, H, W) and weight (out, in / groups, kD, kH, kW), got (2, 3)"] =
      function() F.conv3d(zeros(2, 3), zeros(1, 1, 1, 1, 1)) end,
    ["conv3d: input (1, 2, 2, 2, 2) does not fit weight (1, 3, 1, 1, 1) with groups = 1"] = function()
      F.conv3d(zeros(1, 2, 2, 2, 2), zeros(1, 3, 1, 1, 1))
    end,
    ["conv3d: dtypes differ: input is float32, weight is float64"] = function()
      F.conv3d(zeros(1, 1, 2, 2, 2), zeros({1, 1, 1, 1, 1}, {dtype = "float64"}))
    end,
    ["conv3d: the kernel of weight (1, 1, 3, 1, 1) is larger than the padded input (1, 1, 2, 2, 2)"] = function()
      F.conv3d(zeros(1, 1, 2, 2, 2), zeros(1, 1, 3, 1, 1))
    end,
    ["conv3d: bias (2,) does not fit weight (1, 1, 1, 1, 1)"] = function()
      F.conv3d(zeros(1, 1, 2, 2, 2), zeros(1, 1, 1, 1, 1), zeros(2))
    end,
    ["conv3d: stride: expected a number or a table of 3, got a table of 2"] = function()
      F.conv3d(zeros(1, 1, 2, 2, 2), zeros(1, 1, 1, 1, 1), nil, {1, 2})
    end,
    ["conv_transpose3d: output_padding must be below stride or dilation"] = function()
      F.conv_transpose3d(zeros(1, 1, 2, 2, 2), zeros(1, 1, 1, 1, 1), {output_padding = 1})
    end,
    ["conv1d: input (1, 2, 4) does not fit weight (1, 3, 3) with groups = 1"] = function()
      F.conv1d(zeros(1, 2, 4), zeros(1, 3, 3))
    end,
    ["conv1d: the kernel of weight (1, 1, 5) is larger than the padded input (1, 4)"] = function()
      F.conv1d(zeros(1, 4), zeros(1, 1, 5))
    end,
    ["conv1d: bias (2,) does not fit weight (1, 1, 1)"] = function()
      F.conv1d(zeros(1, 4), zeros(1, 1, 1), zeros(2))
    end,
    ["max_pool1d: kernel_size 5 is larger than the padded input (1, 4)"] = function() F.max_pool1d(zeros(1, 4), 5) end,
    ["avg_pool1d: padding 2 is more than half of kernel_size 3"] = function()
      F.avg_pool1d(zeros(1, 4), 3, {padding = 2})
    end,
    ["conv1d: padding 'same' needs stride 1"] = function()
      F.conv1d(zeros(1, 1, 4), zeros(1, 1, 3), {padding = "same", stride = 2})
    end,
    ["conv1d: stride: expected one integer, got 2"] = function()
      F.conv1d(zeros(1, 1, 4), zeros(1, 1, 3), nil, {1, 2})
    end,
    ["ConvTranspose2d: output_size: dim 1: expected a size between 7 and 8, got 9"] = function()
      nn.ConvTranspose2d(1, 1, 3, {stride = 2})(zeros(1, 1, 2, 3), {5, 9})
    end,
    ["max_pool3d: expected input (N, C, D, H, W) or (C, D, H, W), got (2, 2)"] = function()
      F.max_pool3d(zeros(2, 2), 2)
    end,
    ["avg_pool3d: divisor_override must not be 0"] = function()
      F.avg_pool3d(zeros(1, 1, 2, 2, 2), 2, {divisor_override = 0})
    end,
    ["adaptive_max_pool2d: output_size: expected a number or a table of 2, got a table of 3"] = function()
      F.adaptive_max_pool2d(zeros(1, 1, 2, 2), {1, 1, 1})
    end,
    ["max_unpool1d: indices: expected numbers within 0..3, got 4..4"] = function()
      F.max_unpool1d(zeros(1, 1, 2), long {{{4, 4}}}, 2)
    end,
    ["max_unpool1d: indices: expected int64 (1, 1, 2), got int64 (1, 2)"] = function()
      F.max_unpool1d(zeros(1, 1, 2), long {{0, 0}}, 2)
    end,
    ["max_unpool1d: output_size: dim 0: expected a size between 3 and 5, got 6"] = function()
      F.max_unpool1d(zeros(1, 1, 2), long {{{0, 1}}}, 2, {output_size = 6})
    end,
    ["FractionalMaxPool2d: expected either output_size or output_ratio"] = function() nn.FractionalMaxPool2d(2) end,
    ["fractional_max_pool2d: windows of 3 do not make 4 in dim 2 of input (1, 1, 5, 5)"] = function()
      F.fractional_max_pool2d(zeros(1, 1, 5, 5), 3, 4)
    end,
    ["Embedding: sparse: there are no sparse tensors here"] = function() nn.Embedding(3, 2, {sparse = true}) end,
    ["EmbeddingBag: _weight: expected shape (3, 2), got (2, 2)"] = function()
      nn.EmbeddingBag(3, 2, {_weight = zeros(2, 2)})
    end,
    ["embedding_bag: a one-dimensional input needs offsets"] = function() F.embedding_bag(long {0}, zeros(2, 2)) end,
    ["embedding_bag: offsets: expected 0 as the first, got 1"] = function()
      F.embedding_bag(long {0, 1}, zeros(2, 2), long {1})
    end,
    ["embedding_bag: offsets: expected rising numbers up to 2, got 3 after 0"] = function()
      F.embedding_bag(long {0, 1}, zeros(2, 2), long {0, 3})
    end,
    ["embedding_bag: per_sample_weights need mode 'sum', got 'mean'"] = function()
      F.embedding_bag(long {{0, 1}}, zeros(2, 2), {per_sample_weights = zeros(1, 2)})
    end,
    ["embedding_bag: scale_grad_by_freq does not go with mode 'max'"] = function()
      F.embedding_bag(long {{0, 1}}, zeros(2, 2), {mode = "max", scale_grad_by_freq = true})
    end,
    ["AdaptiveLogSoftmaxWithLoss: cutoffs: expected rising numbers in 1..8, got 5, 3"] = function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 9, {5, 3})
    end,
    ["AdaptiveLogSoftmaxWithLoss: target 9 is outside 0..8"] = function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 9, {3})(zeros(1, 4), long {9})
    end,
    ["pdist: expected an input (N, D), got (2,)"] = function() F.pdist(zeros(2)) end,
  } do
    it(message, function() check.raises(message, call) end)
  end
end)
