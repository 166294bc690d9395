--- Stack and split: join tensors and split them along a dim; grids, and combinations.
--
-- Functions of any number of tensors accept them one by one and return their results one by one, or accept one table
-- and return one.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dims = require "accelhost.util.dims"
local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked

local join = {}

-- The tensors of such a function, and were they in a table?
local function tensors_of(what, ...)
  local first, count = ..., select("#", ...)
  if count == 1 and type(first) == "table" then
    return arguments.check(what, "tensors", "tensor_list", first), true
  end
  local list = {...}
  for i = 1, count do arguments.check(what, "tensor " .. i - 1, "tensor", list[i]) end
  if count == 0 then fail("%s: expected tensors", what) end
  return list, false
end

local function given_back(list, was_table)
  if was_table then return list end
  return unpack(list)
end

local function mapped(what, one, ...)
  local list, was_table = tensors_of(what, ...)
  local results = {}
  for i, tensor in ipairs(list) do results[i] = one(tensor) end
  return given_back(results, was_table)
end

local function at_least_1(tensor) return tensor:dim() == 0 and tensor:reshape(1) or tensor end

local function at_least_2(tensor)
  tensor = at_least_1(tensor)
  return tensor:dim() == 1 and tensor:unsqueeze(0) or tensor
end

local function at_least_3(tensor)
  tensor = at_least_2(tensor)
  return tensor:dim() == 2 and tensor:unsqueeze(-1) or tensor
end

--- Each tensor with at least one dim: a 0-dim one becomes (1).
--
--     accelhost.atleast_1d(accelhost.tensor(3)):shape()  --> {1}
---@param ... userdata|userdata[]
---@return userdata|userdata[] ...
function join.atleast_1d(...) return mapped("atleast_1d", at_least_1, ...) end

--- Each tensor with at least two dims: (n) becomes (1, n).
---@param ... userdata|userdata[]
---@return userdata|userdata[] ...
function join.atleast_2d(...) return mapped("atleast_2d", at_least_2, ...) end

--- Each tensor with at least three dims: (n) becomes (1, n, 1), (m, n) becomes (m, n, 1).
---@param ... userdata|userdata[]
---@return userdata|userdata[] ...
function join.atleast_3d(...) return mapped("atleast_3d", at_least_3, ...) end

-- Make a function that concatenates tensors with at least some dims along a dim, or along that of `dim(first)`.
local function stacking(what, at_least, dim)
  local read = signature(what, {"tensors: tensor_list"})
  return function(...)
    local tensors, list = read(...), {}
    if #tensors == 0 then fail("%s: tensors: expected at least one", what) end
    for i, tensor in ipairs(tensors) do list[i] = at_least(tensor) end
    return C.cat(list, type(dim) == "function" and dim(list[1]) or dim)
  end
end

--- Side by side: along dim 1, of 1-d tensors along dim 0.
--
--     accelhost.hstack {accelhost.ones(2), accelhost.zeros(1)}  --> tensor([1., 1., 0.])
join.hstack = stacking("hstack", at_least_1, function(first) return first:dim() == 1 and 0 or 1 end)

--- One below the other: along dim 0, of 1-d tensors as rows.
--
--     accelhost.vstack {accelhost.ones(2), accelhost.zeros(2)}  --> tensor([[1., 1.], [0., 0.]])
join.vstack = stacking("vstack", at_least_2, 0)

--- The same as vstack.
join.row_stack = stacking("row_stack", at_least_2, 0)

--- One behind the other: along dim 2.
join.dstack = stacking("dstack", at_least_3, 2)

local function column(tensor) return tensor:dim() < 2 and tensor:reshape(tensor:numel(), 1) or tensor end

--- Side by side, 1-d tensors as columns.
join.column_stack = stacking("column_stack", column, 1)

local function promoted(tensors)
  local dtype = tensors[1].dtype
  for i = 2, #tensors do dtype = C.dtype.promote_types(dtype, tensors[i].dtype) end
  return dtype
end

--- A matrix with these matrices along its diagonal, zeros elsewhere. 1-d tensors count as rows.
--
--     accelhost.block_diag(accelhost.ones(1, 2), accelhost.ones(1, 1))  --> tensor([[1., 1., 0.], [0., 0., 1.]])
---@param ... userdata|userdata[] of at most 2 dims
function join.block_diag(...)
  local list = tensors_of("block_diag", ...)
  if #list == 0 then return C.empty {1, 0} end
  local columns, rows, before, dtype = 0, {}, 0, promoted(list)
  for i, tensor in ipairs(list) do
    if tensor:dim() > 2 then
      fail("block_diag: tensor %d: expected at most 2 dims, got shape %s", i - 1, arguments.shape_text(tensor))
    end
    list[i] = at_least_2(tensor)
    columns = columns + list[i]:size(1)
  end
  for i, tensor in ipairs(list) do
    local height, width = tensor:size(0), tensor:size(1)
    local options = {dtype = dtype, device = tensor.device}
    rows[i] = C.cat({C.zeros({height, before}, options), tensor,
      C.zeros({height, columns - before - width}, options)}, 1)
    before = before + width
  end
  return C.cat(rows, 0)
end

local function broadcast_sizes(what, shapes)
  local sizes, count = {}, 0
  for _, shape in ipairs(shapes) do count = math.max(count, #shape) end
  for d = 1, count do sizes[d] = 1 end
  for _, shape in ipairs(shapes) do
    for d, size in ipairs(shape) do
      local at = d + count - #shape
      if size ~= 1 and sizes[at] ~= 1 and sizes[at] ~= size then
        fail("%s: sizes %d and %d of dim %d do not broadcast", what, sizes[at], size, at - 1)
      end
      if size ~= 1 then sizes[at] = size end
    end
  end
  return sizes
end

--- The shape to which tensors of these shapes broadcast.
--
--     accelhost.broadcast_shapes({2, 1}, {3})  --> {2, 3}
---@param ... integer[]
---@return integer[]
function join.broadcast_shapes(...)
  local shapes = {...}
  for i = 1, select("#", ...) do
    arguments.check("broadcast_shapes", "shape " .. i - 1, "sizes", shapes[i])
    if type(shapes[i]) == "number" then shapes[i] = {shapes[i]} end
  end
  return broadcast_sizes("broadcast_shapes", shapes)
end

--- The tensors in the shape to which they broadcast: views, or a tensor itself where it has that shape.
---@param ... userdata|userdata[]
---@return userdata|userdata[] ...
function join.broadcast_tensors(...)
  local list, was_table = tensors_of("broadcast_tensors", ...)
  local shapes, results = {}, {}
  for i, tensor in ipairs(list) do shapes[i] = tensor:shape() end
  local size = broadcast_sizes("broadcast_tensors", shapes)
  for i, tensor in ipairs(list) do
    local view = tensor:expand(size)
    results[i] = C.same_shape(view, tensor) and tensor or view
  end
  return given_back(results, was_table)
end

--- Grids of coordinates: of k tensors of sizes n1 .. nk, k tensors of shape (n1, .., nk), where the i-th runs along dim
--- i - 1. With `indexing = "xy"` the first two dims are swapped. 0-dim tensors count as one element.
--
--     local rows, columns = accelhost.meshgrid(accelhost.arange(2), accelhost.arange(3))  --> [2, 3], [2, 3]
---@param ... userdata|userdata[]|{indexing: "ij"|"xy"}
---@return userdata|userdata[] ...
function join.meshgrid(...)
  local given, count, indexing = {...}, select("#", ...), "ij"
  if count > 1 and arguments.is_options(given[count]) then
    arguments.check_names("meshgrid", given[count], {"indexing"})
    indexing = arguments.check("meshgrid", "indexing", "'ij'|'xy'", given[count].indexing or "ij")
    count = count - 1
  end
  local list, was_table = tensors_of("meshgrid", unpack(given, 1, count))
  local sizes, results, swapped = {}, {}, indexing == "xy" and #list > 1
  for i, tensor in ipairs(list) do
    if tensor:dim() > 1 then
      fail("meshgrid: tensor %d: expected at most 1 dim, got shape %s", i - 1, arguments.shape_text(tensor))
    end
    if tensor.dtype ~= list[1].dtype then
      fail("meshgrid: dtypes differ: %s and %s", list[1].dtype, tensor.dtype)
    end
    sizes[i] = tensor:numel()
  end
  for i, tensor in ipairs(list) do
    local shape = {}
    for d = 1, #list do shape[d] = d == i and sizes[i] or 1 end
    results[i] = tensor:reshape(shape):expand(sizes)
    if swapped then results[i] = results[i]:transpose(0, 1) end
  end
  return given_back(results, was_table)
end

--- All combinations of one element of each tensor, as rows in order; of one tensor the tensor itself.
--
--     accelhost.cartesian_prod(accelhost.arange(2), accelhost.arange(2))  --> [[0, 0], [0, 1], [1, 0], [1, 1]]
---@param ... userdata|userdata[] 1-d
function join.cartesian_prod(...)
  local list = tensors_of("cartesian_prod", ...)
  for i, tensor in ipairs(list) do
    if tensor:dim() ~= 1 then
      fail("cartesian_prod: tensor %d: expected 1 dim, got shape %s", i - 1, arguments.shape_text(tensor))
    end
  end
  if #list == 1 then return list[1] end
  local grids = join.meshgrid(list)
  for i, grid in ipairs(grids) do grids[i] = grid:reshape(-1) end
  return C.stack(grids, 1)
end

-- Return the number of choices of r of n things.
local function count_choices(n, r, again)
  if again then n = n + r - 1 end
  if r > n then return 0 end
  local count = 1
  for i = 1, math.min(r, n - r) do
    count = count * (n - i + 1) / i
    if count > 2 ^ 31 then break end
  end
  return math.floor(count + 0.5)
end

-- The positions of all choices, one after another, each in rising order.
local function choices(n, r, again)
  local at, list = {}, {}
  for i = 1, r do at[i] = again and 0 or i - 1 end
  repeat
    for i = 1, r do list[#list + 1] = at[i] end
    local k = r
    while k > 0 and at[k] == (again and n - 1 or n - r + k - 1) do k = k - 1 end
    if k > 0 then
      at[k] = at[k] + 1
      for i = k + 1, r do at[i] = again and at[k] or at[i - 1] + 1 end
    end
  until k == 0
  return list
end

--- All choices of `r` elements of a 1-d tensor, as rows in order.
--
--     accelhost.combinations(accelhost.arange(3))  --> tensor([[0, 1], [0, 2], [1, 2]])
---@param input userdata 1-d
---@param with_replacement? boolean default false; may an element be chosen again?
join.combinations = checked("combinations", {
  "input: tensor", {"r: size", 2}, {"with_replacement: flag", false},
}, function(input, r, again)
  if input:dim() ~= 1 then
    fail("combinations: input: expected 1 dim, got shape %s", arguments.shape_text(input))
  end
  if r == 0 then return C.empty({0}, {dtype = input.dtype, device = input.device}) end
  local n = input:numel()
  local count = count_choices(n, r, again)
  if count * r > 2 ^ 26 then fail("combinations: too many choices of %d out of %d elements", r, n) end
  if count == 0 then return C.empty({0, r}, {dtype = input.dtype, device = input.device}) end
  local positions = C.tensor(choices(n, r, again), {dtype = "int64"}):to(input.device)
  return input:index_select(0, positions):reshape(count, r)
end)

local read_tensor_split = signature("tensor_split",
  {"input: tensor", "indices_or_sections: integer|integers|tensor", {"dim: integer", 0}})

local function split_at(input, places, dim)
  local views, from, size = {}, 0, input:size(dim)
  for i = 1, #places + 1 do
    local to = places[i] or size
    if to < 0 then to = to + size end
    to = math.max(0, math.min(to, size))
    views[i] = input:narrow(dim, math.min(from, size), math.max(0, to - from))
    from = to
  end
  return views
end

local function tensor_split(what, input, sections, dim)
  if input:dim() == 0 then fail("%s: expected at least one dim, got a 0-dim tensor", what) end
  dim = dims.wrap(what, dim, input:dim())
  if C.is_tensor(sections) then
    if sections:dim() > 1 or sections.dtype ~= "int64" then
      fail("%s: indices_or_sections: expected int64 of at most 1 dim, got %s %s", what, sections.dtype,
        arguments.shape_text(sections))
    end
    sections = sections:tolist()
  end
  if type(sections) == "table" then return split_at(input, sections, dim) end
  if sections < 1 or sections > 2 ^ 20 then fail("%s: expected 1..2^20 sections, got %g", what, sections) end
  local size, places, at = input:size(dim), {}, 0
  for i = 1, sections - 1 do
    at = at + math.floor(size / sections) + (i <= size % sections and 1 or 0)
    places[i] = at
  end
  return split_at(input, places, dim)
end

--- Views of a number of sections whose sizes differ by at most one, or split before each of the given indices.
--
--     accelhost.arange(5):tensor_split(2)  --> {[0, 1, 2], [3, 4]}
---@return userdata[] # a table, counted from 1
function join.tensor_split(...) return tensor_split("tensor_split", read_tensor_split(...)) end

-- Make a function that splits tensors of at least some dims into equal parts along PyTorch's dim of this name.
local function equal_split(what, least, along)
  local read = signature(what, {"input: tensor", "indices_or_sections: integer|integers"})
  return function(...)
    local input, sections = read(...)
    if input:dim() < least then
      fail("%s: expected at least %d dims, got shape %s", what, least, arguments.shape_text(input))
    end
    local dim = least == 1 and input:dim() == 1 and 0 or along
    local size = input:size(dim)
    if type(sections) == "number" and (sections < 1 or size % sections ~= 0) then
      fail("%s: dim %d of size %d cannot be split into %d equal sections", what, dim, size, sections)
    end
    return tensor_split(what, input, sections, dim)
  end
end

--- Views side by side: along dim 1, of a 1-d tensor along dim 0, in equal sections or before the given indices.
---@return userdata[]
join.hsplit = equal_split("hsplit", 1, 1)

--- Views one below the other: along dim 0, in equal sections or before the given indices.
---@param input userdata of at least 2 dims
---@return userdata[]
join.vsplit = equal_split("vsplit", 2, 0)

--- Views one behind the other: along dim 2, in equal sections or before the given indices.
---@param input userdata of at least 3 dims
---@return userdata[]
join.dsplit = equal_split("dsplit", 3, 2)

return join
