--- The checks of all functions of accelhost.linalg: dtype and shape of the matrices, one batch for two of them, and
--- LAPACK's info of each; and the two decompositions that several functions use.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, shape_text = arguments.fail, arguments.shape_text
local check = {}

--- Raise unless the tensor is float32 or float64: products of halves lose too much for a decomposition.
---@param name string the function, for the message
---@param what? string the argument, default "A"
function check.float(name, tensor, what)
  local dtype = tensor.dtype
  if dtype ~= "float32" and dtype ~= "float64" then
    fail("%s: %s: expected float32 or float64, got %s", name, what or "A", dtype)
  end
end

--- Raise unless it holds matrices (..., m, n).
function check.matrices(name, tensor, what)
  check.float(name, tensor, what)
  if tensor:dim() < 2 then
    fail("%s: %s: expected at least 2 dims, got %s", name, what or "A", shape_text(tensor))
  end
end

--- Raise unless it holds square matrices (..., n, n).
function check.square(name, tensor, what)
  check.matrices(name, tensor, what)
  if tensor:size(-1) ~= tensor:size(-2) then
    fail("%s: %s: expected square matrices (..., n, n), got %s", name, what or "A", shape_text(tensor))
  end
end

--- Raise unless both have one dtype.
function check.same_dtype(name, a, b)
  if a.dtype ~= b.dtype then fail("%s: dtypes differ: %s and %s", name, a.dtype, b.dtype) end
end

--- The sizes that two lists of leading sizes broadcast to, or nil.
local function broadcast(a, b)
  local sizes, longest = {}, math.max(#a, #b)
  for d = 1, longest do
    local x, y = a[d - longest + #a] or 1, b[d - longest + #b] or 1
    if x ~= y and x ~= 1 and y ~= 1 then return nil end
    sizes[d] = x == 1 and y or x
  end
  return sizes
end

local function batch_of(tensor, count)
  return {unpack(tensor:shape(), 1, tensor:dim() - count)}
end

local function expanded(tensor, batch, count)
  local sizes, shape = {unpack(batch)}, tensor:shape()
  for d = #shape - count + 1, #shape do sizes[#sizes + 1] = shape[d] end
  return tensor:expand(sizes)
end

--- Two stacks over the batch that both broadcast to.
---@param a userdata
---@param b userdata
---@param count_b? integer the last dims of b that are no batch, default 2
---@return userdata, userdata
function check.one_batch(name, a, b, count_b)
  local batch = broadcast(batch_of(a, 2), batch_of(b, count_b or 2))
  if not batch then
    fail("%s: batches of %s and %s do not broadcast", name, shape_text(a), shape_text(b))
  end
  return expanded(a, batch, 2), expanded(b, batch, count_b or 2)
end

--- Raise when LAPACK's info of some matrix is not 0.
---@param info userdata int32, one number per matrix
---@param text string the error of "the matrix"; %d in it becomes the info
function check.info(name, info, text)
  local flat = info:reshape(-1)
  local bad = flat:ne(0)
  if not bad:any():item() then return end
  local at = bad:to("uint8"):argmax():item()
  local what = info:dim() == 0 and "the matrix" or ("matrix %d of the batch"):format(at)
  fail("%s: %s %s", name, what, text:format(math.abs(flat[at]:item())))
end

check.singular = "is singular: the pivot in row %d, counting from 1, is zero"

local not_converged = "did not converge, or holds a number that is not finite"

--- U, S, Vh, or S alone where vectors are not wanted.
---@param A userdata
---@param full boolean
---@param vectors boolean
---@return userdata, userdata, userdata
function check.svd(name, A, full, vectors)
  local U, S, Vh, info = C.matrix_svd(A, full, vectors)
  check.info(name, info, not_converged)
  return U, S, Vh
end

--- The singular values of each matrix.
function check.svdvals(name, A)
  local _, S = check.svd(name, A, false, check.wants_grad(A))
  return S
end

--- Eigenvalues and eigenvectors of symmetric matrices; the vectors only where they are wanted.
---@param A userdata
---@param upper boolean which triangle is read
---@param vectors boolean
---@return userdata, userdata
function check.eigh(name, A, upper, vectors)
  local values, found, info = C.matrix_eigh(A, upper, vectors or check.wants_grad(A))
  check.info(name, info, not_converged)
  return values, found
end

--- Is a gradient to be recorded for this?
---@param ... userdata
---@return boolean
function check.wants_grad(...)
  if not C.autograd.is_grad_enabled() then return false end
  for i = 1, select("#", ...) do
    if select(i, ...).requires_grad then return true end
  end
  return false
end

return check
