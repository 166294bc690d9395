--- Layers that change a tensor's shape.
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local shape = {}

--- Make the dims start_dim..end_dim one.
--
--   nn.Flatten()(images):size(1)  --> 784
local Flatten = Module:extend "Flatten"
shape.Flatten = Flatten
local read_flatten = arguments.signature("Flatten", {{"start_dim: integer", 1}, {"end_dim: integer", -1}})

function Flatten:init(...)
  self.start_dim, self.end_dim = read_flatten(...)
end

function Flatten:forward(input)
  return input:flatten(self.start_dim, self.end_dim)
end

function Flatten:extra_repr()
  return repr.join("start_dim", repr.value(self.start_dim), "end_dim", repr.value(self.end_dim))
end

--- Split one dim into several.
--
--   nn.Unflatten(1, {2, 2})(x):dim()  --> 3
local Unflatten = Module:extend "Unflatten"
shape.Unflatten = Unflatten
local read_unflatten = arguments.signature("Unflatten", {"dim: integer", "unflattened_size: integers"})

function Unflatten:init(...)
  self.dim, self.unflattened_size = read_unflatten(...)
end

function Unflatten:forward(input)
  return input:unflatten(self.dim, self.unflattened_size)
end

function Unflatten:extra_repr()
  return repr.join("dim", repr.value(self.dim), "unflattened_size", repr.value(self.unflattened_size))
end

return shape
