-- accelhost.autograd.gradcheck and gradgradcheck with the tolerance of the specs.
local autograd = require("accelhost").autograd

local M = {}

for _, name in ipairs {"gradcheck", "gradgradcheck"} do
  ---@param fn fun(...): userdata
  ---@param inputs any[]
  ---@param options? {eps?: number, atol?: number, rtol?: number} rtol 1e-4
  M[name] = function(fn, inputs, options)
    local given = {rtol = 1e-4}
    for key, value in pairs(options or {}) do given[key] = value end
    return autograd[name](fn, inputs, given)
  end
end

return M
