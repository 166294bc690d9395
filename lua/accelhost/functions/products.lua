--- Products of tensors other than matmul: contractions, Kronecker and cross products, distances between rows.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local dims = require "accelhost.util.dims"
local fail, signature, shape_text = arguments.fail, arguments.signature, arguments.shape_text
local checked, named = arguments.checked, arguments.named

local products = {}

-- Dims 0 .. count - 1 that are not in the list.
local function others(list, count)
  local is_listed, rest = {}, {}
  for _, dim in ipairs(list) do is_listed[dim] = true end
  for dim = 0, count - 1 do
    if not is_listed[dim] then rest[#rest + 1] = dim end
  end
  return rest
end

local function sizes_at(x, list)
  local sizes = {}
  for i, dim in ipairs(list) do sizes[i] = x:size(dim) end
  return sizes
end

local function contraction_dims(a, b, given)
  if type(given) == "number" then
    if given > a:dim() or given > b:dim() then
      fail("tensordot: %d dims of shapes %s and %s cannot be summed", given, shape_text(a), shape_text(b))
    end
    local of_a, of_b = {}, {}
    for i = 1, given do of_a[i], of_b[i] = a:dim() - given + i - 1, i - 1 end
    return of_a, of_b
  end
  local first, second = given[1], given[2]
  arguments.check("tensordot", "dims of a", "integers", first)
  arguments.check("tensordot", "dims of b", "integers", second)
  local of_a, of_b = dims.wrap_all("tensordot", first, a:dim()), dims.wrap_all("tensordot", second, b:dim())
  if #of_a ~= #of_b then fail("tensordot: dims: %d of a but %d of b", #of_a, #of_b) end
  return of_a, of_b
end

--- Products of elements summed over some dims of both: over the last dims of a and the first of b (a number), or over
--- pairs of dims {{dims of a}, {dims of b}}; a dim of size 1 broadcasts. The result has the other dims of a, then
--- those of b.
--
--     accelhost.tensordot(accelhost.ones(2, 3), accelhost.ones(3, 4), 1):shape()  --> {2, 4}
---@param dims? integer|integer[][]|table default 2
products.tensordot = checked("tensordot", {"a: tensor", "b: tensor", {"dims: size|list", 2}}, function(a, b, given)
  local of_a, of_b = contraction_dims(a, b, given)
  for i = 1, #of_a do
    if a:size(of_a[i]) == 1 then
      b = b:size(of_b[i]) == 1 and b or b:sum(of_b[i], true, {dtype = b.dtype})
    elseif b:size(of_b[i]) == 1 then
      a = a:sum(of_a[i], true, {dtype = a.dtype})
    elseif a:size(of_a[i]) ~= b:size(of_b[i]) then
      fail("tensordot: dim %d of a %s and dim %d of b %s differ in size", of_a[i], shape_text(a), of_b[i],
        shape_text(b))
    end
  end
  local own_a, own_b = others(of_a, a:dim()), others(of_b, b:dim())
  local size_a, size_b, n = sizes_at(a, own_a), sizes_at(b, own_b), dims.product(sizes_at(a, of_a))
  local left = a:permute(dims.concat(own_a, of_a)):reshape(dims.product(size_a), n)
  local right = b:permute(dims.concat(of_b, own_b)):reshape(n, dims.product(size_b))
  return C.matmul(left, right):reshape(dims.concat(size_a, size_b))
end)

--- Products summed over the last dim of both; the product itself where one of them is 0-dim.
--
--     accelhost.inner(accelhost.tensor {1, 2}, accelhost.tensor {3, 4})  --> tensor(11.)
---@param input userdata (..., n)
---@param other userdata (..., n)
products.inner = checked("inner", {"input: tensor", "other: tensor"}, function(input, other)
  if input:dim() == 0 or other:dim() == 0 then return input * other end
  if input:size(-1) ~= other:size(-1) then
    fail("inner: the last dims of %s and %s differ", shape_text(input), shape_text(other))
  end
  return products.tensordot(input, other, {{-1}, {-1}})
end)

local read_vdot = signature("vdot", {"input: tensor", "other: tensor"})

--- The dot product of two vectors.
---@param input userdata 1-d
---@param other userdata 1-d
---@return userdata 0-dim
function products.vdot(...) return C.dot(read_vdot(...)) end

--- The Kronecker product: the input with every element replaced by that element times `other`.
--
--     accelhost.kron(accelhost.eye(2), accelhost.ones(1, 2))  --> tensor([[1., 1., 0., 0.], [0., 0., 1., 1.]])
products.kron = checked("kron", {"input: tensor", "other: tensor"}, function(input, other)
  local count = math.max(input:dim(), other:dim())
  if count == 1 and input:dim() == other:dim() then
    local product = C.outer(input, other)
    local result = product:view(-1)
    product:free()
    return result
  end
  if count > 4 then fail("kron: expected at most 4 dims, got %s and %s", shape_text(input), shape_text(other)) end
  local wide, inner, size = {}, {}, {}
  for d = 1, count do
    local a, b = d - count + input:dim(), d - count + other:dim()
    a, b = a > 0 and input:size(a - 1) or 1, b > 0 and other:size(b - 1) or 1
    wide[2 * d - 1], wide[2 * d] = a, 1
    inner[2 * d - 1], inner[2 * d] = 1, b
    size[d] = a * b
  end
  local product = input:reshape(wide) * other:reshape(inner)
  local result = product:reshape(size)
  product:free()
  return result
end)

--- The cross product of vectors of 3 along a dim. The other dims broadcast.
--
--     accelhost.cross(accelhost.tensor {1, 0, 0}, accelhost.tensor {0, 1, 0})  --> tensor([0., 0., 1.])
---@param dim? integer|table default the first dim of size 3
products.cross = named("cross", {"input: tensor", "other: tensor", {"dim: integer"}}, function(what, input, other, dim)
  if input:dim() ~= other:dim() then
    fail("cross: expected as many dims of both, got %s and %s", shape_text(input), shape_text(other))
  end
  for d = 0, input:dim() - 1 do
    if not dim and input:size(d) == 3 then dim = d end
  end
  if not dim or input:dim() == 0 then fail("cross: no dim of %s has size 3", shape_text(input)) end
  dim = dims.wrap(what, dim, input:dim())
  if input:size(dim) ~= 3 or other:size(dim) ~= 3 then
    fail("cross: expected size 3 along dim %d, got %s and %s", dim, shape_text(input), shape_text(other))
  end
  -- Component i of the result is component i + 1 of a_i b_(i+1) - a_(i+1) b_i.
  local a, b = input:roll(-1, dim), other:roll(-1, dim)
  local left, right = input * b, a * other
  a:free()
  b:free()
  local difference = left - right
  left:free()
  right:free()
  local result = difference:roll(-1, dim)
  difference:free()
  return result
end)

-- sqrt of sums of squares, |a|^2 + |b|^2 - 2ab as one product of rows [-2a, |a|^2, 1] and [b, 1, |b|^2]; where that is
-- 0 the slope is 0.
local function euclidean_by_matmul(a, b)
  local of_a, of_b = a:square():sum(-1, true), b:square():sum(-1, true)
  local left = C.cat({a * -2, of_a, C.ones_like(of_a)}, -1)
  local right = C.cat({b, C.ones_like(of_b), of_b}, -1)
  local square = C.matmul(left, right:transpose(-1, -2))
  if not square.requires_grad then return square:clamp_min_(0):sqrt_() end
  local zero = square:le(0)
  return C.where(zero, 0, C.where(zero, 1, square):sqrt())
end

local read_cdist = signature("cdist", {
  "x1: tensor", "x2: tensor", {"p: nonnegative", 2},
  {"compute_mode: 'use_mm_for_euclid_dist_if_necessary'|'use_mm_for_euclid_dist'|'donot_use_mm_for_euclid_dist'",
    "use_mm_for_euclid_dist_if_necessary"},
})

--- The p-norm of the difference of each row of x1 and each row of x2: (..., m, r). For p = 2 and more than 25 rows by a
--- matrix product, unless `compute_mode` excludes it: faster, and less exact for rows that are close.
--
--     accelhost.cdist(accelhost.zeros(1, 2), accelhost.tensor {{3, 4}})  --> tensor([[5.]])
---@param x1 userdata (..., m, n), floating
---@param x2 userdata (..., r, n)
---@param p? number|table default 2; 0 counts the differences, math.huge is the largest difference
function products.cdist(...)
  local x1, x2, p, mode = read_cdist(...)
  for i, x in ipairs {x1, x2} do
    if not x:is_floating_point() then fail("cdist: x%d: expected a floating input, got %s", i, x.dtype) end
    if x:dim() < 2 then fail("cdist: x%d: expected at least 2 dims, got shape %s", i, shape_text(x)) end
  end
  if x1:size(-1) ~= x2:size(-1) then
    fail("cdist: rows of x1 %s and x2 %s differ in length", shape_text(x1), shape_text(x2))
  end
  local many = x1:size(-2) > 25 or x2:size(-2) > 25
  if p == 2 and (mode == "use_mm_for_euclid_dist" or (many and mode ~= "donot_use_mm_for_euclid_dist")) then
    return euclidean_by_matmul(x1, x2)
  end
  return (x1:unsqueeze(-2) - x2:unsqueeze(-3)):norm(p, -1)
end

--- The p-norm of the difference of two tensors that broadcast.
---@return userdata 0-dim
products.dist = checked("dist", {"input: tensor", "other: tensor", {"p: number", 2}}, function(input, other, p)
  return (input - other):norm(p)
end)

local function whole(number) return number < 0 and math.ceil(number) or math.floor(number) end

local scaled = {{"beta: number", 1}, {"alpha: number", 1}}

-- beta * input + alpha * product; the values of `input` do not count for beta = 0. Of integers the fractions of beta
-- and alpha are cut.
local function added(input, product, beta, alpha)
  if not product:is_floating_point() then beta, alpha = whole(beta), whole(alpha) end
  if alpha ~= 1 then product = product * alpha end
  if beta == 0 then return product end
  return (beta == 1 and input or input * beta) + product
end

--- beta * input + alpha * (mat @ vec).
---@param mat userdata (n, m)
---@param vec userdata (m)
---@return userdata (n)
products.addmv = checked("addmv", {
  "input: tensor", "mat: tensor", "vec: tensor", unpack(scaled),
}, function(input, mat, vec, beta, alpha)
  return added(input, C.mv(mat, vec), beta, alpha)
end)

--- beta * input + alpha * outer(vec1, vec2).
---@param vec1 userdata (n)
---@param vec2 userdata (m)
---@return userdata (n, m)
products.addr = named("addr", {
  "input: tensor", "vec1: tensor", "vec2: tensor", unpack(scaled),
}, function(what, input, vec1, vec2, beta, alpha)
  if input.dtype == "bool" and vec1.dtype == "bool" and vec2.dtype == "bool" then
    local product = C.logical_and(C.outer(vec1, vec2), alpha ~= 0)
    return beta == 0 and product or C.logical_or(input, product)
  end
  if not (input:is_floating_point() or vec1:is_floating_point() or vec2:is_floating_point()) then
    arguments.check(what, "beta", "integer", beta)
    arguments.check(what, "alpha", "integer", alpha)
  end
  return added(input, C.outer(vec1, vec2), beta, alpha)
end)

--- beta * input + alpha * the sum over a batch of matrix products.
---@param batch1 userdata (b, n, m)
---@param batch2 userdata (b, m, k)
---@return userdata (n, k)
products.addbmm = checked("addbmm", {
  "input: tensor", "batch1: tensor", "batch2: tensor", unpack(scaled),
}, function(input, batch1, batch2, beta, alpha)
  local fits = batch1:dim() == 3 and batch2:dim() == 3 and batch1:size(0) == batch2:size(0) and
    batch1:size(2) == batch2:size(1)
  if not fits then
    fail("addbmm: expected batches (b, n, m) and (b, m, k), got %s and %s", shape_text(batch1), shape_text(batch2))
  end
  -- The sum over the batch is a longer sum within one product, which is rounded once.
  local depth = batch1:size(0) * batch1:size(2)
  return C.addmm(input, batch1:transpose(0, 1):reshape(batch1:size(1), depth), batch2:reshape(depth, batch2:size(2)),
    beta, alpha)
end)

autocast(products, "lower", "addbmm")
autocast(products, "own", "addmv", "lower")
autocast(products, "float32", "cdist")
autocast(products, "none", "tensordot cross", "widest")
autocast(products, "none", "dist", "float32")
autocast(products, "none", "addr", "lower")

return products
