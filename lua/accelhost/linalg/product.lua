--- Products, powers and exponentials of matrices.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local autograd = require "accelhost.autograd"
local check = require "accelhost.linalg.check"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local checked, named = arguments.checked, arguments.named

local product = {}

product.matmul = C.matmul

-- Return the split of each chain i..j of factors that needs fewest multiplications (Cormen et al., Introduction to
-- Algorithms, 15.2). `size` has the rows of each matrix and the columns of the last.
local function best_splits(size)
  local count, cost, split = #size - 1, {}, {}
  for i = 1, count do cost[i], split[i] = {[i] = 0}, {} end
  for length = 1, count - 1 do
    for i = 1, count - length do
      local j = i + length
      for k = i, j - 1 do
        local total = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1]
        if not cost[i][j] or total < cost[i][j] then cost[i][j], split[i][j] = total, k end
      end
    end
  end
  return split
end

local function multiply(matrices, split, i, j)
  if i == j then return matrices[i] end
  local k = split[i][j]
  return C.matmul(multiply(matrices, split, i, k), multiply(matrices, split, k + 1, j))
end

local function chain(name, matrices)
  local count, size = #matrices, {}
  for i, matrix in ipairs(matrices) do
    if matrix:dim() ~= 2 then
      fail("%s: tensors: expected matrices, got %s in place %d", name, shape_text(matrix), i)
    end
    check.same_dtype(name, matrices[1], matrix)
    if i > 1 and size[i] ~= matrix:size(0) then
      fail("%s: tensors %s and %s do not fit", name, shape_text(matrices[i - 1]), shape_text(matrix))
    end
    size[i], size[i + 1] = matrix:size(0), matrix:size(1)
  end
  return multiply(matrices, best_splits(size), 1, count)
end

--- The product of two or more matrices, in the order of multiplications that costs least. The first and the last may
--- be vectors.
--     local y = linalg.multi_dot {A, B, v}
product.multi_dot = named("linalg.multi_dot", {"tensors: tensors"}, function(what, tensors)
  if C.is_tensor(tensors) or #tensors < 2 then fail("linalg.multi_dot: tensors: expected at least 2 tensors") end
  local matrices, count = {unpack(tensors)}, #tensors
  local row, column = matrices[1]:dim() == 1, matrices[count]:dim() == 1
  if row then matrices[1] = matrices[1]:unsqueeze(0) end
  if column then matrices[count] = matrices[count]:unsqueeze(1) end
  local result = chain(what, matrices)
  if column then result = result:squeeze(1) end
  return row and result:squeeze(0) or result
end)

--- The product of matrices, in the order that costs least: multi_dot with the matrices one by one.
--     local y = accelhost.chain_matmul(A, B, C)
---@param ... userdata
function product.chain_matmul(...)
  local matrices = {...}
  if #matrices == 0 then fail "chain_matmul: 'matrices' is missing" end
  for i = 1, select("#", ...) do arguments.check("chain_matmul", "matrices", "tensor", matrices[i]) end
  return chain("chain_matmul", matrices)
end

local function square(name, A)
  if A:dim() < 2 or A:size(-1) ~= A:size(-2) then
    fail("%s: A: expected square matrices (..., n, n), got %s", name, shape_text(A))
  end
end

local function identity_like(A)
  return C.eye(A:size(-1), {dtype = A.dtype, device = A.device}):expand(A:shape())
end

local Constant = autograd.Function:extend "matrix_power"

function Constant.forward(ctx, A, result)
  ctx:save_for_backward(A)
  return result
end

function Constant.backward(ctx) return C.zeros_like(ctx.saved_tensors[1]) end

--- A times itself n times, by squaring; the identity for n = 0, powers of the inverse for n < 0.
--     local B = linalg.matrix_power(A, 3)
---@param A userdata (..., k, k)
product.matrix_power = named("linalg.matrix_power", {"A: tensor", "n: integer"}, function(what, A, n)
  square(what, A)
  if n == 0 then -- the gradient is 0
    local result = identity_like(A):clone()
    return A.requires_grad and C.autograd.is_grad_enabled() and (Constant.apply(A, result)) or result
  end
  if n < 0 then
    check.float(what, A)
    local inverse, info = C.matrix_inverse(A)
    check.info(what, info, check.singular)
    A, n = inverse, -n
  end
  local result
  while n > 0 do
    if n % 2 == 1 then result = result and C.matmul(result, A) or A end
    n = math.floor(n / 2)
    if n > 0 then A = C.matmul(A, A) end
  end
  return result == A and A:clone() or result
end)

-- The diagonal Pade approximant of degree 13 (N. Higham, "The scaling and squaring method for the matrix exponential
-- revisited", 2005): good to float64's precision for a 1-norm up to 5.37.
local pade = {
  64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
  670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
}
local pade_norm = 5.371920351148152

local function pade_exp(A)
  local b, eye = pade, identity_like(A)
  local A2 = C.matmul(A, A)
  local A4 = C.matmul(A2, A2)
  local A6 = C.matmul(A4, A2)
  local odd = C.matmul(A6, A6 * b[14] + A4 * b[12] + A2 * b[10]) + A6 * b[8] + A4 * b[6] + A2 * b[4] + eye * b[2]
  local even = C.matmul(A6, A6 * b[13] + A4 * b[11] + A2 * b[9]) + A6 * b[7] + A4 * b[5] + A2 * b[3] + eye * b[1]
  odd = C.matmul(A, odd)
  return (C.matrix_solve(even - odd, even + odd))
end

--- The matrix exponential of each matrix of A (..., n, n): 1 + A + A A / 2 + ..., by scaling, a Pade approximant and
--- squaring.
--     local B = linalg.matrix_exp(A)
product.matrix_exp = named("linalg.matrix_exp", {"A: tensor"}, function(what, A)
  check.square(what, A)
  if A:numel() == 0 then return A:clone() end
  -- The number of halvings of each matrix, and of squarings of the result. A norm that is not finite needs none.
  local halvings, most
  C.autograd.no_grad(function()
    local norm = A:detach():abs():sum(-2, true):amax({-1, -2}, true)
    halvings = (norm / pade_norm):log2():ceil():clamp(0, 2000)
    halvings = C.where(norm:isfinite(), halvings, 0)
    most = halvings:max():item()
  end)
  local B = pade_exp(A / C.pow(2, halvings))
  for i = 1, most do B = C.where(halvings:ge(i), C.matmul(B, B), B) end
  return B
end)

--- The cross product along a dim of size 3; the other dims broadcast.
--     local y = linalg.cross(a, b)
product.cross = named("linalg.cross", {
  "input: tensor", "other: tensor", {"dim: integer", -1},
}, function(name, a, b, dim)
  if a:dim() ~= b:dim() then
    fail("%s: expected as many dims on both sides, got %s and %s", name, shape_text(a), shape_text(b))
  end
  if dim >= a:dim() or dim < -a:dim() or a:size(dim) ~= 3 or b:size(dim) ~= 3 then
    fail("%s: expected size 3 in dim %d, got %s and %s", name, dim, shape_text(a), shape_text(b))
  end
  return a:roll(-1, dim) * b:roll(-2, dim) - a:roll(-2, dim) * b:roll(-1, dim)
end)

--- The sum of x * y along a dim; the others broadcast.
--     local y = linalg.vecdot(a, b)
product.vecdot = named("linalg.vecdot", {"x: tensor", "y: tensor", {"dim: integer", -1}}, function(what, x, y, dim)
  check.same_dtype(what, x, y)
  return (x * y):sum(dim)
end)

local read_diagonal = signature("linalg.diagonal",
  {"A: tensor", {"offset: integer", 0}, {"dim1: integer", -2}, {"dim2: integer", -1}})
--- A view on the diagonals of matrices: accelhost.diagonal over the last two dims.
--     local d = linalg.diagonal(A)
function product.diagonal(...)
  return C.diagonal(read_diagonal(...))
end

--- The powers 0 .. N - 1 of each number of x (..., n) as rows (..., n, N); N is n by default. A 0-dim x is one number.
--     local V = linalg.vander(x)
product.vander = checked("linalg.vander", {"x: tensor", {"N: count"}}, function(x, count)
  if x:dim() == 0 then x = x:reshape(1) end
  local powers = C.arange(count or x:size(-1), {device = x.device})
  return C.pow(x:unsqueeze(-1), x:is_floating_point() and powers:to(x.dtype) or powers)
end)

autocast(product, "lower", "vecdot")
autocast(product, "own", "matrix_exp")
autocast(product, "none", "cross", "widest")

return product
