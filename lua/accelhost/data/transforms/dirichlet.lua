--- Random weights of mixed images, drawn as torch.distributions' Beta and Dirichlet draw them.
local C = require "accelhost._C"
local rng_streams = require "accelhost.data.rng_streams"

local dirichlet = {}

--- Draw rows of numbers that sum to 1, each with the concentration alpha.
---@param alpha number
---@param rows integer
---@param width integer numbers of a row
---@return userdata float32 [rows, width]
function dirichlet.sample(alpha, rows, width)
  return rng_streams.tensors(function()
    local drawn = C.standard_gamma(C.full({rows, width}, alpha, {dtype = "float64", device = "cpu"}))
    local limits = C.dtype.finfo "float32"
    return drawn:div(drawn:sum(-1, true)):to("float32"):clamp(limits.tiny, 1 - limits.eps / 2)
  end)
end

return dirichlet
