--- Norms, determinants, ranks, and other functions of singular values.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local autograd = require "accelhost.autograd"
local check = require "accelhost.linalg.check"

local fail, shape_text, named = arguments.fail, arguments.shape_text, arguments.named
local norm = {}
local inf = math.huge

local function turned(x) return x:transpose(-1, -2) end

local function as_float(name, tensor, dtype, what)
  if not tensor:is_floating_point() then
    fail("%s: %s: expected a floating dtype, got %s", name, what, tensor.dtype)
  end
  return dtype and tensor:to(dtype) or tensor
end

local function vector_norm(x, ord, dim, keepdim)
  if type(dim) == "table" and #dim == 0 then dim = nil end
  return C.norm(x, ord, dim, keepdim)
end

--- The p-norm of vectors, p = ord: (sum |x|^p)^(1/p), max |x| for inf, min |x| for -inf, the number of nonzeros for 0;
--- over `dim`, or all elements. It is computed in `dtype`.
--     local y = linalg.vector_norm(x, 1, {dim = 0})
norm.vector_norm = named("linalg.vector_norm", {
  "x: tensor", {"ord: number", 2}, {"dim: integers"}, {"keepdim: flag", false}, {"dtype: dtype"},
}, function(what, x, ord, dim, keepdim, dtype)
  return vector_norm(as_float(what, x, dtype, "x"), ord, dim, keepdim)
end)

-- ord -> {dim of the sums, dim of the result, "amax" or "amin" of the sums}
local sums = {[1] = {-2, -1, "amax"}, [-1] = {-2, -1, "amin"}, [inf] = {-1, -2, "amax"}, [-inf] = {-1, -2, "amin"}}

-- The norm of the matrices in the last two dims.
local function last_dims_norm(name, A, ord)
  if ord == "fro" then return C.norm(A, 2, {-2, -1}) end
  if sums[ord] then
    local along, across, extreme = unpack(sums[ord])
    return C[extreme](A:abs():sum(along, true), across, true):squeeze(-1):squeeze(-1)
  end
  if ord ~= "nuc" and ord ~= 2 and ord ~= -2 then
    fail("%s: ord: unknown norm of matrices %s (known: 'fro', 'nuc', 1, -1, 2, -2, inf, -inf)", name, tostring(ord))
  end
  check.float(name, A)
  local S = check.svdvals(name, A)
  if ord == "nuc" then return S:sum(-1) end
  return C[ord > 0 and "amax" or "amin"](S, -1)
end

local function matrix_norm(name, A, ord, dim, keepdim)
  dim = type(dim) == "number" and {dim} or dim
  local count = A:dim()
  if #dim ~= 2 or count < 2 then
    fail("%s: expected two dims of a tensor of at least 2, got %d of %s", name, #dim, shape_text(A))
  end
  local wrapped = {}
  for i = 1, 2 do
    local d = dim[i]
    if d < -count or d >= count then
      fail("%s: dim %d is out of range (expected %d..%d)", name, d, -count, count - 1)
    end
    wrapped[i] = d < 0 and d + count or d
  end
  if wrapped[1] == wrapped[2] then fail("%s: dim %d is there twice", name, dim[1]) end
  local result = last_dims_norm(name, A:movedim(wrapped, {-2, -1}), ord)
  if not keepdim then return result end
  return result:unsqueeze(math.min(unpack(wrapped))):unsqueeze(math.max(unpack(wrapped)))
end

--- A norm of matrices, the last two dims unless `dim` names others: ord "fro" (of all elements), "nuc" (the sum of the
--- singular values), 2 and -2 (the largest, the smallest of them), 1 and -1 (of the sums of columns), inf and -inf (of
--- rows).
--     local y = linalg.matrix_norm(A, "nuc")
---@param A userdata (..., m, n)
norm.matrix_norm = named("linalg.matrix_norm", {
  "A: tensor", {"ord: number|'fro'|'nuc'", "fro"}, {"dim: integers"}, {"keepdim: flag", false}, {"dtype: dtype"},
}, function(what, A, ord, dim, keepdim, dtype)
  return matrix_norm(what, as_float(what, A, dtype, "A"), ord, dim or {-2, -1}, keepdim)
end)

--- vector_norm or matrix_norm, as in NumPy: without ord the 2-norm of the elements, over `dim` or all; with ord the
--- norm of vectors for one dim (or a tensor with one), of matrices for two.
--     local y = linalg.norm(x)
norm.norm = named("linalg.norm", {
  "A: tensor", {"ord: number|'fro'|'nuc'"}, {"dim: integers"}, {"keepdim: flag", false}, {"dtype: dtype"},
}, function(name, A, ord, dim, keepdim, dtype)
  A = as_float(name, A, dtype, "A")
  local dims = dim == nil and A:dim() or type(dim) == "number" and 1 or #dim
  if ord == nil then return vector_norm(A, 2, dim, keepdim) end
  if dims == 1 and type(ord) == "number" then return vector_norm(A, ord, dim, keepdim) end
  if dims ~= 2 then
    fail("%s: ord %s needs one dim or two (a string: two), got %d", name, tostring(ord), dims)
  end
  return matrix_norm(name, A, ord, dim or {-2, -1}, keepdim)
end)

--- The determinant of each matrix of A (..., n, n). Its gradient is right for singular matrices too; its second
--- derivative needs others.
--     local d = linalg.det(A)
norm.det = named("linalg.det", {"A: tensor"}, function(what, A)
  check.square(what, A)
  return (C.matrix_det(A))
end)

--- The sign of the determinant and the logarithm of its size, which do not overflow: 0 and -inf for singular matrices.
--     local sign, logabsdet = linalg.slogdet(A)
---@param A userdata (..., n, n)
---@return userdata sign
---@return userdata logabsdet
norm.slogdet = named("linalg.slogdet", {"A: tensor"}, function(what, A)
  check.square(what, A)
  local sign, logabsdet = C.matrix_slogdet(A)
  return sign, logabsdet
end)

--- The logarithm of the determinant: -inf where it is 0, nan where it is negative.
--     local y = accelhost.logdet(A)
---@param input userdata (..., n, n)
norm.logdet = named("logdet", {"input: tensor"}, function(what, A)
  check.square(what, A, "input")
  local sign, logabsdet = C.matrix_slogdet(A)
  return C.where(sign:eq(-1), 0 / 0, logabsdet)
end)

local eps = {float32 = 2 ^ -23, float64 = 2 ^ -52}

-- The number below which a singular value counts as 0, one per matrix.
local function threshold(A, S, atol, rtol)
  if rtol == nil then
    local given = C.is_tensor(atol) or (atol or 0) > 0
    rtol = given and 0 or eps[A.dtype] * math.max(A:size(-1), A:size(-2))
  end
  atol = atol or 0
  local largest = S:size(-1) > 0 and S:amax(-1) or S:sum(-1)
  local relative = largest * rtol
  return C.is_tensor(atol) and C.maximum(relative, atol:to(A.dtype)) or relative:clamp_min(atol)
end

local function singular_values(name, A, hermitian)
  if not hermitian then return check.svdvals(name, A) end
  return (check.eigh(name, A, false, false)):abs()
end

local tolerances = {
  "A: tensor", {"atol: number|tensor"}, {"rtol: number|tensor"}, {"hermitian: flag", false},
}
--- The number of singular values above max(atol, rtol times the largest), int64. rtol is the dtype's epsilon times
--- max(m, n), or 0 if atol is set. hermitian = true is for symmetric matrices and is faster.
--     local r = linalg.matrix_rank(A)
---@param A userdata (..., m, n)
norm.matrix_rank = named("linalg.matrix_rank", tolerances, function(what, A, atol, rtol, hermitian)
  check[hermitian and "square" or "matrices"](what, A)
  return C.autograd.no_grad(function()
    local S = singular_values(what, A, hermitian)
    return S:gt(threshold(A, S, atol, rtol):unsqueeze(-1)):sum(-1)
  end)
end)

local function pinv_by_values(A, atol, rtol, hermitian)
  if A:numel() == 0 then
    return turned(A):clone()
  end
  local U, S, Vh
  if hermitian then
    S, U = check.eigh("linalg.pinv", A, false, true)
    Vh = turned(U)
  else
    U, S, Vh = check.svd("linalg.pinv", A, false, true)
  end
  local keep = S:abs():gt(threshold(A, S:abs(), atol, rtol):unsqueeze(-1))
  local inverse = C.where(keep, C.where(keep, S, 1):reciprocal(), 0)
  return C.matmul(turned(Vh) * inverse:unsqueeze(-2), turned(U))
end

-- The pseudoinverse with the derivative of G. Golub and V. Pereyra (1973), which, unlike that of the singular vectors,
-- is finite for equal singular values. P is computed again where its own history is wanted.
local Pinv = autograd.Function:extend "linalg.pinv"

function Pinv.forward(ctx, A, atol, rtol, hermitian)
  ctx:save_for_backward(A)
  ctx.atol, ctx.rtol, ctx.hermitian = atol, rtol, hermitian
  local P = pinv_by_values(A, atol, rtol, hermitian)
  ctx.inverse = P:detach()
  return P
end

function Pinv.backward(ctx, grad)
  local A = ctx.saved_tensors[1]
  local P = C.autograd.is_grad_enabled() and Pinv.apply(A, ctx.atol, ctx.rtol, ctx.hermitian) or ctx.inverse
  local mm, Pt, Gt = C.matmul, turned(P), turned(grad)
  if A:size(-2) <= A:size(-1) then
    local K = mm(Gt, P)
    local KPt = mm(K, Pt)
    return KPt - turned(mm(P, K)) - mm(mm(A, P), KPt) + mm(mm(Pt, P), Gt - mm(K, A))
  end
  local K = mm(P, Gt)
  local PtK = mm(Pt, K)
  return PtK - turned(mm(K, P)) + mm(mm(Gt - mm(A, K), P), Pt) - mm(mm(PtK, P), A)
end

--- The Moore-Penrose pseudoinverse (..., n, m): singular values up to max(atol, rtol times the largest) count as 0,
--- rtol as for matrix_rank. hermitian = true is for symmetric matrices and uses their eigenvalues.
--     local P = linalg.pinv(A)
---@param A userdata (..., m, n)
norm.pinv = named("linalg.pinv", tolerances, function(what, A, atol, rtol, hermitian)
  check[hermitian and "square" or "matrices"](what, A)
  return (Pinv.apply(A, atol, rtol, hermitian))
end)

-- X X = A implies dX X + X dX = dA, which the eigenvectors of A make diagonal: unlike the eigenvectors' own derivative
-- this is finite for equal eigenvalues.
local Sqrth = autograd.Function:extend "linalg.matrix_sqrth"

local function sqrth_parts(A)
  local values, vectors = check.eigh("linalg.matrix_sqrth", A, false, true)
  return values:clamp_min(0):sqrt(), vectors
end

function Sqrth.forward(ctx, A)
  ctx:save_for_backward(A)
  local roots, vectors = sqrth_parts(A)
  ctx.roots, ctx.vectors = roots, vectors
  return C.matmul(vectors * roots:unsqueeze(-2), turned(vectors))
end

function Sqrth.backward(ctx, grad)
  local roots, vectors = ctx.roots, ctx.vectors
  if C.autograd.is_grad_enabled() then roots, vectors = sqrth_parts(ctx.saved_tensors[1]) end
  local inner = C.matmul(turned(vectors), C.matmul((grad + turned(grad)) / 2, vectors))
  inner = inner / (roots:unsqueeze(-1) + roots:unsqueeze(-2))
  return C.matmul(vectors, C.matmul(inner, turned(vectors)))
end

--- The symmetric X with X X = A of symmetric positive-definite matrices (..., n, n), of which the lower triangle is
--- read. Negative eigenvalues count as 0.
--     local X = linalg.matrix_sqrth(A)
norm.matrix_sqrth = named("linalg.matrix_sqrth", {"A: tensor"}, function(what, A)
  check.square(what, A)
  return (Sqrth.apply(A))
end)

--- The condition number |A|_p |inverse of A|_p; p as ord of matrix_norm, without it 2: the largest over the smallest
--- singular value, which matrices that are not square have too. Singular matrices have inf, empty ones 0.
--     local y = linalg.cond(A)
norm.cond = named("linalg.cond", {"A: tensor", {"p: number|'fro'|'nuc'"}}, function(name, A, p)
  check.matrices(name, A)
  if A:size(-1) * A:size(-2) == 0 then
    local batch = A:shape()
    batch[#batch], batch[#batch - 1] = nil, nil
    return C.zeros(batch, {dtype = A.dtype, device = A.device})
  end
  if p == nil or p == 2 or p == -2 then
    local S = check.svdvals(name, A)
    local largest, smallest = S:amax(-1), S:amin(-1)
    return p == -2 and smallest / largest or largest / smallest
  end
  check.square(name, A)
  local inverse, info = C.matrix_inverse(A)
  local result = last_dims_norm(name, A, p) * last_dims_norm(name, C.where(info:ne(0):unsqueeze(-1):unsqueeze(-1), inf,
    inverse), p)
  return result
end)

local drivers = {gels = 0, gelsy = 1, gelsd = 2, gelss = 3}

--- The X for which |A X - B| is least, of smallest norm where there are several (driver gels: A of full rank only).
--- Results: X (..., n, k); for gels, gelsd and gelss with m > n and full rank the sums of squares left over, else an
--- empty tensor; the rank but for gels (int64); the singular values for gelsd and gelss. Singular values up to rcond
--- times the largest count as 0, by default the dtype's epsilon times max(m, n).
--     local X = linalg.lstsq(A, B)
---@param A userdata (..., m, n)
---@param B userdata (..., m, k) or (..., m)
---@return userdata solution
---@return userdata residuals
---@return userdata rank
---@return userdata singular_values
norm.lstsq = named("linalg.lstsq", {
  "A: tensor", "B: tensor", {"rcond: number"}, {"driver: 'gels'|'gelsy'|'gelsd'|'gelss'", "gelsy"},
}, function(name, A, B, rcond, driver)
  check.matrices(name, A)
  check.float(name, B, "B")
  check.same_dtype(name, A, B)
  local vectors = B:dim() == A:dim() - 1 and B:dim() > 0
  if vectors then B = B:unsqueeze(-1) end
  if B:dim() < 2 or B:size(-2) ~= A:size(-2) then
    fail("%s: A %s and B %s do not fit", name, shape_text(A), shape_text(B))
  end
  A, B = check.one_batch(name, A, B)
  local m, n = A:size(-2), A:size(-1)
  rcond = rcond or eps[A.dtype] * math.max(m, n)
  local raw, rank, S, info = C.matrix_lstsq(A:detach(), B:detach(), rcond, driver)
  check.info(name, info, driver == "gels" and "is not of full rank, or holds a number that is not finite: driver "
    .. "'gelsy' accepts it" or "did not converge, or holds a number that is not finite")
  local X, residuals, empty = raw:narrow(-2, 0, n), A:new_empty(0), A:new_empty(0)
  local full = driver == "gels" or (driver ~= "gelsy" and rank:eq(n):all():item())
  local left_over = m > n and full
  if left_over then residuals = raw:narrow(-2, n, m - n):square():sum(-2) end
  if left_over and n == 0 then residuals = driver == "gels" and residuals * 0 or B:detach():square():sum(-2) end
  if check.wants_grad(A, B) then
    -- The gradient is that of the pseudoinverse, the numbers are the driver's.
    local by_inverse = C.matmul(norm.pinv(A, {rtol = rcond}), B)
    X = by_inverse + (X - by_inverse:detach())
    if left_over then
      local by_ops = (C.matmul(A, X) - B):square():sum(-2)
      residuals = by_ops + (residuals - by_ops:detach())
    end
  end
  X = vectors and X:squeeze(-1) or X
  return X:contiguous(), residuals, drivers[driver] > 0 and rank or rank:new_empty(0),
    drivers[driver] > 1 and S or empty
end)

autocast(norm, "float32", "matrix_rank pinv matrix_sqrth cond lstsq", "own")
autocast(norm, "none", "vector_norm matrix_norm", "float32")

return norm
