--- Inputs that fit the rows of layers.lua, activations.lua and losses.lua.
local accelhost = require "accelhost"
local tensors = require "spec.support.tensors"

local inputs = {}

inputs.long = tensors.long

inputs.images = accelhost.linspace(-2, 2, 2 * 4 * 6 * 6):view(2, 4, 6, 6)
inputs.rows = inputs.images:view(-1):narrow(0, 0, 64):view(2, 4, 8)
inputs.logits, inputs.classes = inputs.rows:select(0, 0), inputs.long {0, 3, 1, 2}
inputs.chances = inputs.logits:sigmoid()
inputs.mixed, inputs.other = (inputs.logits * 7):sin(), (inputs.logits * 11):cos()
inputs.signs = (inputs.mixed - 0.1):sign()
inputs.weights = accelhost.tensor {1, 2, 3, 4, 5, 6, 7, 8}

return inputs
