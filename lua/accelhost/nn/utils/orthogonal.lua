--- The orthogonal parametrization: matrices with orthonormal columns (or rows, when there are more columns).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local linalg = require "accelhost.linalg"
local nn_module = require "accelhost.nn.module"
local parametrize = require "accelhost.nn.utils.parametrize"

local fail = arguments.fail
local epsilon = {float64 = 2 ^ -52, float32 = 2 ^ -23}

local function is_orthogonal(Q)
  local k = Q:size(-1)
  local one = C.eye(k, {dtype = Q.dtype, device = Q.device})
  local error = (Q:transpose(-2, -1):matmul(Q) - one):abs() - one * 1e-5
  return error:max():item() <= 10 * Q:size(-2) * epsilon[Q.dtype]
end

-- The Q of A = Q R with a positive diagonal of R.
local function make_orthogonal(A)
  local Q, R = linalg.qr(A)
  return Q * R:diagonal(0, -2, -1):sign():unsqueeze(-2)
end

-- The reflections of A as LAPACK's geqrf stores them, and their factors.
local function reflections(A)
  A = A:clone()
  local rows, columns = A:size(-2), A:size(-1)
  local taus = {}
  for i = 0, math.min(rows, columns) - 1 do
    local column = A:select(-1, i)
    local alpha, below = column:select(-1, i):clone(), column:narrow(-1, i + 1, rows - i - 1)
    local rest = below:square():sum(-1)
    local flat = rest:eq(0)
    local beta = C.where(alpha:lt(0), (alpha * alpha + rest):sqrt(), -(alpha * alpha + rest):sqrt())
    local tau = C.where(flat, C.zeros_like(alpha), (beta - alpha) / beta)
    local v = C.where(flat:unsqueeze(-1), C.zeros_like(below), below / (alpha - beta):unsqueeze(-1))
    if i + 1 < columns then
      local right = A:narrow(-1, i + 1, columns - i - 1):narrow(-2, i, rows - i)
      local reflector = C.cat({C.ones_like(alpha):unsqueeze(-1), v}, -1)
      local product = reflector:unsqueeze(-2):matmul(right)
      right:sub_(tau:unsqueeze(-1):unsqueeze(-1) * reflector:unsqueeze(-1):matmul(product))
    end
    below:copy_(v)
    column:select(-1, i):copy_(C.where(flat, alpha, beta))
    taus[#taus + 1] = tau
  end
  return A, C.stack(taus, -1)
end

local Orthogonal = nn_module.Module:extend "_Orthogonal"

function Orthogonal:init(shape, map, use_trivialization)
  self.shape, self.map, self.trivial = shape, map, use_trivialization
  if use_trivialization then self:register_buffer "base" end
end

local maps = {
  matrix_exp = linalg.matrix_exp,
  cayley = function(A)
    local one = C.eye(A:size(-1), {dtype = A.dtype, device = A.device})
    return linalg.solve(one - A * 0.5, one + A * 0.5)
  end,
}

-- From a skew-symmetric matrix, cut to the columns there are.
local function rotation(X, map)
  local n, k = X:size(-2), X:size(-1)
  X = X:tril()
  if n ~= k then
    local sizes = X:shape()
    sizes[#sizes] = n - k
    X = C.cat({X, X:new_zeros(sizes)}, -1)
  end
  local Q = maps[map](X - X:transpose(-2, -1))
  return n == k and Q or Q:narrow(-1, 0, k)
end

local function reflected(X)
  local A = X:tril(-1)
  local tau = 2 / (1 + (A * A):sum(-2))
  local Q = linalg.householder_product(A, tau)
  -- The signs on the diagonal are no parameters.
  return Q * X:diagonal(0, -2, -1):detach():trunc():unsqueeze(-2)
end

function Orthogonal:forward(X)
  local wide = X:size(-2) < X:size(-1)
  if wide then X = X:transpose(-2, -1) end
  local Q = maps[self.map] and rotation(X, self.map) or reflected(X)
  if self.base ~= nil then Q = self.base:matmul(Q) end
  return wide and Q:transpose(-2, -1) or Q
end

function Orthogonal:right_inverse(Q)
  if arguments.shape_text(Q) ~= self.shape then
    fail("orthogonal: expected a matrix or batch of matrices of shape %s, got %s", self.shape, arguments.shape_text(Q))
  end
  local given, n, k = Q, Q:size(-2), Q:size(-1)
  local wide = n < k
  if wide then Q, n, k = Q:transpose(-2, -1), k, n end
  if not self.trivial then
    if self.map ~= "householder" then return nil end -- neither map has an inverse
    local A, tau = reflections(Q)
    local diagonal = A:diagonal(0, -2, -1)
    diagonal:copy_(C.where(tau:eq(0), -diagonal:sign(), diagonal:sign()))
    return wide and A:transpose(-2, -1) or A
  end
  if n ~= k then
    local sizes = Q:shape()
    sizes[#sizes] = n - k
    Q = make_orthogonal(C.cat({Q, Q:new_empty(sizes):normal_(0, 1)}, -1))
  else
    Q = is_orthogonal(Q) and Q:clone() or make_orthogonal(Q)
  end
  self.base = Q
  local negative = C.zeros_like(given)
  negative:diagonal(0, -2, -1):fill_(-1)
  return negative
end

local read = arguments.signature("orthogonal", {
  "module: module", {"name: string", "weight"}, {"orthogonal_map: 'matrix_exp'|'cayley'|'householder'"},
  {"use_trivialization: flag", true},
})

--- A weight whose columns are orthonormal (its rows, when it has more columns than rows); with more than 2 dims, each
-- matrix of the batch. It is base times the exponential or the Cayley map of a skew-symmetric matrix, or a product of
-- Householder reflections, of the original (Lezcano-Casado, 2019). The initial value is the weight when that is
-- orthogonal, else the Q of its QR decomposition.
--
--     local layer = nn.utils.parametrizations.orthogonal(nn.Linear(20, 40))
---@param orthogonal_map "matrix_exp"|"cayley"|"householder"? default matrix_exp for square matrices, else householder
---@param use_trivialization boolean? default true: with `base`, with which each map reaches any value
---@return Module module
return function(...)
  local module, name, map, use_trivialization = read(...)
  local weight = module[name]
  if not C.is_tensor(weight) then fail("orthogonal: %s has no parameter or buffer '%s'", module._name, name) end
  if weight:dim() < 2 then
    fail("orthogonal: expected a matrix or batch of matrices, got shape %s", arguments.shape_text(weight))
  end
  if not epsilon[weight.dtype] then fail("orthogonal: expected float32 or float64, got %s", weight.dtype) end
  map = map or weight:size(-2) == weight:size(-1) and "matrix_exp" or "householder"
  return parametrize.register_parametrization(module, name,
    Orthogonal(arguments.shape_text(weight), map, use_trivialization), {unsafe = true})
end
