--- Dropout layers: active in training, the identity in evaluation.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local dropout = {}

-- A class that calls the function `fn` of nn.functional.
local function class(name, fn)
  local Class = Module:extend(name)
  Class.init = arguments.setter(name, {{"p: probability", 0.5}, {"inplace: flag", false}})
  function Class:forward(input) return F[fn](input, self.p, self.training, self.inplace) end
  function Class:extra_repr()
    return repr.join("p", self.p % 1 == 0 and self.p ~= 0 and repr.float(self.p) or repr.value(self.p), "inplace",
      repr.value(self.inplace))
  end
  dropout[name] = Class
end

--- Zero each element with probability p and scale the others by 1 / (1 - p).
--
--   nn.Dropout(0.5):eval()(a)  --> tensor([1., 2., 3.])
class("Dropout", "dropout")
function dropout.Dropout:forward(input)
  if self.inplace then return C.dropout_(input, self.p, self.training) end
  return C.dropout(input, self.p, self.training)
end

--- Zero whole channels of [N, C, L].
--
--   nn.Dropout1d():eval()(images[0]):size(-1)  --> 28
class("Dropout1d", "dropout1d")

--- Zero whole channels of [N, C, H, W].
--
--   nn.Dropout2d()(images):size(-1)  --> 28
class("Dropout2d", "dropout2d")

--- Zero whole channels of [N, C, D, H, W].
--
--   nn.Dropout3d()(images:unsqueeze(2)):size(-1)  --> 28
class("Dropout3d", "dropout3d")

--- Dropout that keeps the mean and the variance of SELU's outputs.
--
--   nn.AlphaDropout():eval()(a)  --> tensor([1., 2., 3.])
class("AlphaDropout", "alpha_dropout")

--- Alpha dropout of whole channels.
--
--   nn.FeatureAlphaDropout():eval()(images):size(-1)  --> 28
class("FeatureAlphaDropout", "feature_alpha_dropout")

return dropout
