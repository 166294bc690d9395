--- Dropout layers: active in training, the identity in evaluation.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local dropout = {}

local function class(name)
  local Class = Module:extend(name)
  local read = arguments.signature(name, {{"p: probability", 0.5}, {"inplace: flag", false}})
  function Class:init(...)
    self.p, self.inplace = read(...)
  end
  function Class:extra_repr()
    return repr.join("p", self.p % 1 == 0 and self.p ~= 0 and repr.float(self.p) or repr.value(self.p), "inplace",
      repr.value(self.inplace))
  end
  dropout[name] = Class
  return Class
end

--- Zero each element with probability p and scale the others by 1 / (1 - p).
--
--   nn.Dropout(0.5):eval()(a)  --> tensor([1., 2., 3.])
---@class Dropout: Module
local Dropout = class "Dropout"
function Dropout:forward(input)
  if self.inplace then return C.dropout_(input, self.p, self.training) end
  return C.dropout(input, self.p, self.training)
end

--- Zero whole channels of [N, C, L].
--
--   nn.Dropout1d():eval()(images[0]):size(-1)  --> 28
---@class Dropout1d: Module
local Dropout1d = class "Dropout1d"
function Dropout1d:forward(input)
  return F.dropout1d(input, self.p, self.training, self.inplace)
end

--- Zero whole channels of [N, C, H, W].
--
--   nn.Dropout2d()(images):size(-1)  --> 28
---@class Dropout2d: Module
local Dropout2d = class "Dropout2d"
function Dropout2d:forward(input)
  return F.dropout2d(input, self.p, self.training, self.inplace)
end

--- Zero whole channels of [N, C, D, H, W].
--
--   nn.Dropout3d()(images:unsqueeze(2)):size(-1)  --> 28
---@class Dropout3d: Module
local Dropout3d = class "Dropout3d"
function Dropout3d:forward(input)
  return F.dropout3d(input, self.p, self.training, self.inplace)
end

--- Dropout that keeps the mean and the variance of SELU's outputs.
--
--   nn.AlphaDropout():eval()(a)  --> tensor([1., 2., 3.])
---@class AlphaDropout: Module
local AlphaDropout = class "AlphaDropout"
function AlphaDropout:forward(input)
  return F.alpha_dropout(input, self.p, self.training, self.inplace)
end

--- Alpha dropout of whole channels.
--
--   nn.FeatureAlphaDropout():eval()(images):size(-1)  --> 28
---@class FeatureAlphaDropout: Module
local FeatureAlphaDropout = class "FeatureAlphaDropout"
function FeatureAlphaDropout:forward(input)
  return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
end

return dropout
