--- Systems of equations and inverses.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local check = require "accelhost.linalg.check"

local fail, shape_text, named = arguments.fail, arguments.shape_text, arguments.named
local solve = {}

local function turned(x) return x:transpose(-1, -2) end

-- As in NumPy before 2: a B with one dim, or with the shape of A without its last dim, is a stack of vectors.
local function is_vectors(A, B)
  if B:dim() == 1 then return true end
  if B:dim() ~= A:dim() - 1 then return false end
  for d = 0, B:dim() - 1 do
    if B:size(d) ~= A:size(d) then return false end
  end
  return true
end

local function solve_ex(name, A, B, left)
  check.square(name, A)
  check.float(name, B, "B")
  check.same_dtype(name, A, B)
  if B:dim() == 0 then fail("%s: B: expected at least 1 dim, got a number", name) end
  local vectors = is_vectors(A, B)
  if vectors and not left then fail("%s: left = false: expected a matrix B, got a vector %s", name, shape_text(B)) end
  local given = shape_text(B)
  if vectors then B = B:unsqueeze(-1) end
  if B:size(left and -2 or -1) ~= A:size(-1) then
    fail("%s: A %s and B %s do not fit: expected %d %s", name, shape_text(A), given, A:size(-1),
      left and "rows" or "columns")
  end
  if not left then A, B = turned(A), turned(B) end
  A, B = check.one_batch(name, A, B)
  local X, info = C.matrix_solve(A, B)
  if not left then X = turned(X) end
  if vectors then X = X:squeeze(-1) end
  return X, info
end

--- As solve, but a singular matrix raises with check_errors = true only; else its solution is nan and its info, an
--- int32 number per matrix, is above 0.
--     local X, info = linalg.solve_ex(A, B)
---@param A userdata (..., n, n)
---@param B userdata (..., n, k) or (..., n)
---@return userdata X
---@return userdata info
solve.solve_ex = named("linalg.solve_ex", {
  "A: tensor", "B: tensor", {"left: flag", true}, {"check_errors: flag", false},
}, function(what, A, B, left, check_errors)
  local X, info = solve_ex(what, A, B, left)
  if check_errors then check.info(what, info, check.singular) end
  return X, info
end)

--- The X of A X = B, or of X A = B with left = false; A (..., n, n), B (..., n, k), or vectors (..., n). Batches
--- broadcast. float32 or float64. A singular matrix is an error that names it.
--     local x = linalg.solve(A, b)
solve.solve = named("linalg.solve", {"A: tensor", "B: tensor", {"left: flag", true}}, function(what, A, B, left)
  local X, info = solve_ex(what, A, B, left)
  check.info(what, info, check.singular)
  return X
end)

--- The X of A X = B (or X A = B) for triangular A (..., n, n), of which only the triangle is read, with
--- unitriangular = true without its diagonal, which then counts as ones. A zero on the diagonal results in inf or nan.
--     local x = linalg.solve_triangular(A, B, {upper = true})
---@param B userdata (..., n, k)
solve.solve_triangular = named("linalg.solve_triangular", {
  "A: tensor", "B: tensor", "upper: flag", {"left: flag", true}, {"unitriangular: flag", false},
}, function(name, A, B, upper, left, unitriangular)
  check.square(name, A)
  check.matrices(name, B, "B")
  check.same_dtype(name, A, B)
  if B:size(left and -2 or -1) ~= A:size(-1) then
    fail("%s: A %s and B %s do not fit", name, shape_text(A), shape_text(B))
  end
  A, B = check.one_batch(name, A, B)
  return C.matrix_triangular_solve(A, B, upper, left, unitriangular)
end)

--- The inverse and LAPACK's info per matrix (int32; above 0: singular, the inverse is nan).
--     local inverse, info = linalg.inv_ex(A)
---@param A userdata (..., n, n)
---@return userdata inverse
---@return userdata info
solve.inv_ex = named("linalg.inv_ex", {"A: tensor", {"check_errors: flag", false}}, function(what, A, check_errors)
  check.square(what, A)
  local inverse, info = C.matrix_inverse(A)
  if check_errors then check.info(what, info, check.singular) end
  return inverse, info
end)

--- The inverse of each matrix of A (..., n, n), float32 or float64. A singular matrix is an error that names it. To
--- solve equations, solve is faster and more precise.
--     local B = linalg.inv(A)
solve.inv = named("linalg.inv", {"A: tensor"}, function(what, A)
  check.square(what, A)
  local inverse, info = C.matrix_inverse(A)
  check.info(what, info, check.singular)
  return inverse
end)

--- The X of A X = B for A = L L' (upper = true: A = L' L), L the factor that cholesky returns. Batches broadcast.
--     local x = accelhost.cholesky_solve(B, linalg.cholesky(A))
---@param B userdata (..., n, k)
---@param L userdata (..., n, n)
solve.cholesky_solve = named("cholesky_solve", {
  "B: tensor", "L: tensor", {"upper: flag", false},
}, function(name, B, L, upper)
  check.square(name, L, "L")
  check.matrices(name, B, "B")
  check.same_dtype(name, L, B)
  if B:size(-2) ~= L:size(-1) then fail("%s: L %s and B %s do not fit", name, shape_text(L), shape_text(B)) end
  L, B = check.one_batch(name, L, B)
  local first, second = L, turned(L)
  if upper then first, second = second, first end
  return C.matrix_triangular_solve(second, C.matrix_triangular_solve(first, B, false), true)
end)

--- The inverse of L L' (upper = true: L' L).
--     local B = accelhost.cholesky_inverse(linalg.cholesky(A))
---@param L userdata (..., n, n)
solve.cholesky_inverse = named("cholesky_inverse", {"L: tensor", {"upper: flag", false}}, function(what, L, upper)
  check.square(what, L, "L")
  local eye = C.eye(L:size(-1), {dtype = L.dtype, device = L.device})
  return solve.cholesky_solve(eye, L, upper)
end)

--- The inverse of A as a map from its last dims to its first `ind` ones, whose sizes must have the same product.
--     local B = linalg.tensorinv(accelhost.eye(6):reshape(2, 3, 6), {ind = 2})
solve.tensorinv = named("linalg.tensorinv", {"A: tensor", {"ind: count", 2}}, function(what, A, ind)
  local shape, first, rest, rows = A:shape(), {}, {}, 1
  for d = 1, #shape do
    if d <= ind then first[#first + 1], rows = shape[d], rows * shape[d] else rest[#rest + 1] = shape[d] end
  end
  if rows * rows ~= A:numel() then
    fail("linalg.tensorinv: the first %d sizes of %s do not have the product of the rest", ind, shape_text(A))
  end
  for _, size in ipairs(first) do rest[#rest + 1] = size end
  check.float(what, A)
  local inverse, info = C.matrix_inverse(A:reshape(rows, rows))
  check.info(what, info, check.singular)
  return inverse:reshape(rest)
end)

--- The X with tensordot(A, X, X:dim()) = B: the first dims of A (after those named by `dims` are moved to its end) are
--- B's.
--     local x = linalg.tensorsolve(accelhost.eye(6):reshape(2, 3, 6), accelhost.ones(2, 3))
solve.tensorsolve = named("linalg.tensorsolve", {
  "A: tensor", "B: tensor", {"dims: integers"},
}, function(name, A, B, dims)
  check.float(name, A)
  check.same_dtype(name, A, B)
  if dims then
    dims = type(dims) == "number" and {dims} or dims
    local last = {}
    for i = 1, #dims do last[i] = i - 1 - #dims end
    A = A:movedim(dims, last)
  end
  local shape, rest = A:shape(), {}
  for d = B:dim() + 1, #shape do rest[#rest + 1] = shape[d] end
  local count = 1
  for _, size in ipairs(rest) do count = count * size end
  if count ~= B:numel() or A:numel() ~= count * count then
    fail("%s: A %s and B %s do not make a square system", name, shape_text(A), shape_text(B))
  end
  local X, info = C.matrix_solve(A:reshape(count, count), B:reshape(count, 1))
  check.info(name, info, check.singular)
  return X:reshape(rest)
end)

autocast(solve, "float32", "solve_ex solve solve_triangular inv_ex inv cholesky_solve cholesky_inverse"
  .. " tensorinv tensorsolve", "own")

return solve
