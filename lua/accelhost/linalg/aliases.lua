--- Older names of linear algebra: the functions of accelhost.linalg that accelhost itself and its tensors have, as in
--- PyTorch.
local arguments = require "accelhost.util.arguments"
local check = require "accelhost.linalg.check"
local factor = require "accelhost.linalg.factor"
local norm = require "accelhost.linalg.norm"
local product = require "accelhost.linalg.product"
local solve = require "accelhost.linalg.solve"

local checked, named = arguments.checked, arguments.named

local aliases = {
  inverse = solve.inv, cholesky_solve = solve.cholesky_solve, cholesky_inverse = solve.cholesky_inverse,
  lu_unpack = factor.lu_unpack, orgqr = factor.householder_product,
  det = norm.det, slogdet = norm.slogdet, logdet = norm.logdet,
  matrix_power = product.matrix_power, matrix_exp = product.matrix_exp, chain_matmul = product.chain_matmul,
}

--- U, S, V with input = U diag(S) V': the last is V, where linalg.svd returns V'. some = false returns all
--- columns, compute_uv = false zeros for U and V.
--     local U, S, V = accelhost.svd(A)
---@param input userdata (..., m, n)
---@return userdata U
---@return userdata S
---@return userdata V
aliases.svd = named("svd", {
  "input: tensor", {"some: flag", true}, {"compute_uv: flag", true},
}, function(what, input, some, compute_uv)
  if compute_uv then
    local U, S, Vh = factor.svd(input, not some)
    return U, S, Vh:transpose(-1, -2)
  end
  check.matrices(what, input, "input")
  local sizes, m, n = input:shape(), input:size(-2), input:size(-1)
  local function zeros(size)
    sizes[#sizes - 1], sizes[#sizes] = size, size
    return input:new_zeros(sizes)
  end
  return zeros(m), factor.svdvals(input), zeros(n)
end)

--- linalg.pinv with rtol = rcond.
--     local P = accelhost.pinverse(A)
---@param input userdata (..., m, n)
aliases.pinverse = checked("pinverse", {"input: tensor", {"rcond: number", 1e-15}}, function(input, rcond)
  return norm.pinv(input, {rtol = rcond})
end)

--- linalg.lu_solve with the arguments in another order.
--     local x = accelhost.lu_solve(B, LU, pivots)
---@param b userdata (..., n, k)
aliases.lu_solve = checked("lu_solve", {"b: tensor", "LU_data: tensor", "LU_pivots: tensor"}, function(b, LU, pivots)
  return factor.lu_solve(LU, pivots, b)
end)

return aliases
