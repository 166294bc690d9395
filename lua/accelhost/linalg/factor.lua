--- Factorisations of matrices.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local check = require "accelhost.linalg.check"

local fail, shape_text, named = arguments.fail, arguments.shape_text, arguments.named
local factor = {}

local function turned(x) return x:transpose(-1, -2) end

local not_definite = "is not positive-definite: its leading part of order %d is not"

--- The lower triangular L with A = L L' of symmetric positive-definite matrices (..., n, n), or with upper = true the
--- U with A = U' U. Only that triangle of A is read. A matrix that is not positive-definite is an error that names it.
--     local L = linalg.cholesky(A)
factor.cholesky = named("linalg.cholesky", {"A: tensor", {"upper: flag", false}}, function(what, A, upper)
  check.square(what, A)
  local L, info = C.matrix_cholesky(A, upper)
  check.info(what, info, not_definite)
  return L
end)

--- As cholesky, with LAPACK's info per matrix (int32; above 0: not positive-definite, the factor is nan) instead of an
--- error, unless check_errors is true.
--     local L, info = linalg.cholesky_ex(A)
---@return userdata L
---@return userdata info
factor.cholesky_ex = named("linalg.cholesky_ex", {
  "A: tensor", {"upper: flag", false}, {"check_errors: flag", false},
}, function(what, A, upper, check_errors)
  check.square(what, A)
  local L, info = C.matrix_cholesky(A, upper)
  if check_errors then check.info(what, info, not_definite) end
  return L, info
end)

--- Q with orthonormal columns and upper triangular R with A = Q R, k = min(m, n) columns of Q in mode "reduced", all m
--- in mode "complete", none in mode "r". Modes "r" and, for more rows than columns, "complete" have no derivative.
--     local Q, R = linalg.qr(A)
---@param A userdata (..., m, n)
---@return userdata Q
---@return userdata R
factor.qr = named("linalg.qr", {"A: tensor", {"mode: 'reduced'|'complete'|'r'", "reduced"}}, function(what, A, mode)
  check.matrices(what, A)
  local m, n = A:size(-2), A:size(-1)
  if m >= n or mode == "r" or not check.wants_grad(A) then
    local Q, R = C.matrix_qr(A, mode)
    return mode == "r" and Q:new_empty(0) or Q, R
  end
  -- The square part has the derivative; the columns to its right are Q' times those of A.
  local Q, R = C.matrix_qr(A:narrow(-1, 0, m), "reduced")
  return Q, C.cat({R, C.matmul(turned(Q), A:narrow(-1, m, n - m))}, -1)
end)

--- U, S, Vh with A = U diag(S) Vh, S in descending order. With full_matrices = false U has min(m, n) columns and Vh as
--- many rows. Gradients through U and Vh are finite where no two singular values are equal (and, for matrices that are
--- not square, none is 0); derivatives of the columns beyond min(m, n) are not computed.
--     local U, S, Vh = linalg.svd(A, {full_matrices = false})
---@param A userdata (..., m, n)
---@param driver? string of other devices
---@return userdata U
---@return userdata S
---@return userdata Vh
factor.svd = named("linalg.svd", {
  "A: tensor", {"full_matrices: flag", true}, {"driver: string"},
}, function(what, A, full_matrices, driver)
  check.matrices(what, A)
  if driver then fail("linalg.svd: driver: only nil is known on %s, got '%s'", A.device, driver) end
  return check.svd(what, A, full_matrices, true)
end)

--- The singular values of each matrix, in descending order: (..., min(m, n)).
--     local S = linalg.svdvals(A)
---@param A userdata (..., m, n)
---@param driver? string of other devices
factor.svdvals = named("linalg.svdvals", {"A: tensor", {"driver: string"}}, function(what, A, driver)
  check.matrices(what, A)
  if driver then fail("linalg.svdvals: driver: only nil is known on %s, got '%s'", A.device, driver) end
  return check.svdvals(what, A)
end)

local uplo = {"UPLO: 'L'|'U'", "L"}

--- Eigenvalues in ascending order and eigenvectors as columns of symmetric matrices (..., n, n), of which the lower
--- (UPLO = "L") or upper triangle is read. Gradients through vectors are finite where no two values are equal.
--     local values, vectors = linalg.eigh(A)
---@return userdata values
---@return userdata vectors
factor.eigh = named("linalg.eigh", {"A: tensor", uplo}, function(what, A, triangle)
  check.square(what, A)
  return check.eigh(what, A, triangle == "U", true)
end)

--- The eigenvalues of symmetric matrices, in ascending order.
--     local values = linalg.eigvalsh(A)
---@param A userdata (..., n, n)
factor.eigvalsh = named("linalg.eigvalsh", {"A: tensor", uplo}, function(what, A, triangle)
  check.square(what, A)
  return (check.eigh(what, A, triangle == "U", false))
end)

for _, name in ipairs {"eig", "eigvals", "ldl_factor", "ldl_factor_ex", "ldl_solve"} do
  local reason = name:find "^eig" and "eigenvalues of a general matrix are complex numbers, for which there is no "
    .. "dtype; eigh and eigvalsh accept symmetric matrices"
    or "LDL factors; cholesky accepts positive-definite matrices, lu_factor all"
  --- Not available; calling it raises an error with the reason and the alternative.
  ---@names eig eigvals ldl_factor ldl_factor_ex ldl_solve
  local function refuse() fail("linalg.%s: not here: %s", name, reason) end
  factor[name] = refuse
end

local function check_pivot(name, pivot)
  if not pivot then fail("%s: pivot: false is not known on the CPU: an LU needs its rows exchanged", name) end
end

local function lu_factor(name, A, pivot)
  check.matrices(name, A)
  check_pivot(name, pivot)
  return C.matrix_lu(A)
end

--- LU with both factors in one matrix and the int32 pivots (..., min(m, n)): row i was exchanged with row pivots[i],
--- which counts from 1, as LAPACK's. lu_solve accepts both. A singular matrix is an error; lu and lu_factor_ex accept
-- it.
--     local LU, pivots = linalg.lu_factor(A)
---@param A userdata (..., m, n)
---@return userdata LU
---@return userdata pivots
factor.lu_factor = named("linalg.lu_factor", {"A: tensor", {"pivot: flag", true}}, function(what, A, pivot)
  local LU, pivots, info = lu_factor(what, A, pivot)
  check.info(what, info, check.singular)
  return LU, pivots
end)

--- As lu_factor, with LAPACK's info per matrix (int32; above 0: the place of the first zero pivot).
--     local LU, pivots, info = linalg.lu_factor_ex(A)
---@return userdata LU
---@return userdata pivots
---@return userdata info
factor.lu_factor_ex = named("linalg.lu_factor_ex", {
  "A: tensor", {"pivot: flag", true}, {"check_errors: flag", false},
}, function(what, A, pivot, check_errors)
  local LU, pivots, info = lu_factor(what, A, pivot)
  if check_errors then check.info(what, info, check.singular) end
  return LU, pivots, info
end)

local function permutation(pivots, m, like)
  if m == 0 then
    local sizes = pivots:shape()
    sizes[#sizes], sizes[#sizes + 1] = 0, 0
    return like:new_zeros(sizes)
  end
  return turned(C.one_hot(C.matrix_permutation(pivots, m), m):to(like.dtype))
end

local function triangles(LU)
  local m, n = LU:size(-2), LU:size(-1)
  local k = math.min(m, n)
  local eye = C.eye(m, k, {dtype = LU.dtype, device = LU.device})
  return LU:narrow(-1, 0, k):tril(-1) + eye, LU:narrow(-2, 0, k):triu()
end

--- P, L and U from the result of lu_factor; a factor that was not requested is an empty tensor.
--     local P, L, U = accelhost.lu_unpack(linalg.lu_factor(A))
---@param LU_data userdata (..., m, n)
---@param LU_pivots userdata (..., min(m, n))
---@return userdata P
---@return userdata L
---@return userdata U
factor.lu_unpack = named("lu_unpack", {
  "LU_data: tensor", "LU_pivots: tensor", {"unpack_data: flag", true}, {"unpack_pivots: flag", true},
}, function(what, LU, pivots, data, with_pivots)
  check.matrices(what, LU, "LU_data")
  if pivots.dtype ~= "int32" then fail("lu_unpack: LU_pivots: expected int32, got %s", pivots.dtype) end
  local P, L, U = LU:new_empty(0), LU:new_empty(0), LU:new_empty(0)
  if with_pivots then P = permutation(pivots, LU:size(-2), LU) end
  if data then L, U = triangles(LU) end
  return P, L, U
end)

--- P, L, U with A = P L U: a permutation, a unit lower and an upper triangle.
--     local P, L, U = linalg.lu(A)
---@param A userdata (..., m, n)
---@return userdata P
---@return userdata L
---@return userdata U
factor.lu = named("linalg.lu", {"A: tensor", {"pivot: flag", true}}, function(what, A, pivot)
  local LU, pivots = lu_factor(what, A, pivot)
  return permutation(pivots, A:size(-2), A), triangles(LU)
end)

-- By the triangles, so that the factors have a gradient: A = P L U, or A' = U' L' P'.
local function solve_by_triangles(LU, pivots, B, adjoint)
  local P = permutation(pivots, LU:size(-2), LU)
  if not adjoint then
    local Y = C.matrix_triangular_solve(LU, C.matmul(turned(P), B), false, true, true)
    return C.matrix_triangular_solve(LU, Y, true)
  end
  local Y = C.matrix_triangular_solve(turned(LU), B, false)
  return C.matmul(P, C.matrix_triangular_solve(turned(LU), Y, true, true, true))
end

--- The X of A X = B for lu_factor's result for A; of X A = B with left = false, of A' X = B with adjoint = true.
--     local x = linalg.lu_solve(LU, pivots, B)
---@param LU userdata (..., n, n)
---@param pivots userdata (..., n)
---@param B userdata (..., n, k)
factor.lu_solve = named("linalg.lu_solve", {
  "LU: tensor", "pivots: tensor", "B: tensor", {"left: flag", true}, {"adjoint: flag", false},
}, function(name, LU, pivots, B, left, adjoint)
  check.square(name, LU, "LU")
  check.matrices(name, B, "B")
  check.same_dtype(name, LU, B)
  if pivots.dtype ~= "int32" or pivots:dim() ~= LU:dim() - 1 or pivots:size(-1) ~= LU:size(-1) then
    fail("%s: pivots: expected int32 as returned by lu_factor, got %s %s", name, pivots.dtype, shape_text(pivots))
  end
  if B:size(left and -2 or -1) ~= LU:size(-1) then
    fail("%s: LU %s and B %s do not fit", name, shape_text(LU), shape_text(B))
  end
  if not left then B, adjoint = turned(B), not adjoint end
  LU, B = check.one_batch(name, LU, B)
  local sizes = LU:shape()
  sizes[#sizes] = nil
  pivots = pivots:expand(sizes)
  local X = check.wants_grad(LU) and solve_by_triangles(LU, pivots, B, adjoint)
    or C.matrix_lu_solve(LU, pivots, B, adjoint)
  return left and X or turned(X)
end)

--- The first n columns of the product of the reflections 1 - tau_i v_i v_i', v_i being column i of A (..., m, n) below
--- the diagonal with a 1 on it; tau (..., k), k <= n <= m.
--     local Q = linalg.householder_product(A, tau)
factor.householder_product = named("linalg.householder_product", {"A: tensor", "tau: tensor"}, function(name, A, tau)
  check.matrices(name, A)
  check.same_dtype(name, A, tau)
  local m, n, k = A:size(-2), A:size(-1), tau:dim() > 0 and tau:size(-1) or 0
  if m < n or k > n or tau:dim() ~= A:dim() - 1 then
    fail("%s: A %s and tau %s do not fit: expected (..., m, n) and (..., k), k <= n <= m", name, shape_text(A),
      shape_text(tau))
  end
  local like = {dtype = A.dtype, device = A.device}
  local vectors = A:tril(-1) + C.eye(m, n, like)
  local Q = C.eye(m, n, like):expand(A:shape())
  for i = k - 1, 0, -1 do
    local v = vectors:narrow(-1, i, 1)
    Q = Q - tau:narrow(-1, i, 1):unsqueeze(-1) * C.matmul(v, C.matmul(turned(v), Q))
  end
  return Q
end)

autocast(factor, "float32", "cholesky cholesky_ex qr svd svdvals eigh eigvalsh lu_factor lu_factor_ex lu"
  .. " lu_solve householder_product", "own")

return factor
