--- einsum: sums of products of elements named by letters. Operands are contracted two at a time, left to right; a pair
--- is reshaped to (batch, own, summed) x (batch, summed, own) and multiplied as matrices, so that only ops with
--- derivatives are used.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dims = require "accelhost.util.dims"
local fail, shape_text = arguments.fail, arguments.shape_text

-- The names of the dims of one operand: letters, and "-1", "-2", .. from the last one for those of an ellipsis.
local function names_of(term, equation, count, k)
  local before, after = term:match "^(.-)%.%.%.(.*)$"
  local letters = before and before .. after or term
  if letters:find "[^%a]" then
    fail("einsum: '%s' in the equation '%s' is neither a letter nor '...'", letters:match "[^%a]", equation)
  end
  local covered = count and count - #letters or 0
  if count and (covered < 0 or (covered > 0 and not before)) then
    fail("einsum: operand %d has %d dims, '%s' names %d", k, count, term, #letters)
  end
  local names = {}
  for letter in (before or letters):gmatch "." do names[#names + 1] = letter end
  for d = covered, 1, -1 do names[#names + 1] = "-" .. d end
  for letter in (after or ""):gmatch "." do names[#names + 1] = letter end
  return names, before and covered or 0, before ~= nil
end

-- A name that occurs twice in one operand means the diagonal.
local function without_repeats(operand, k)
  local at = {}
  local d = 1
  while d <= #operand.names do
    local name = operand.names[d]
    local first = at[name]
    if first then
      local x = operand.tensor
      if x:size(first - 1) ~= x:size(d - 1) then
        fail("einsum: operand %d: '%s' names dims of sizes %d and %d", k, name, x:size(first - 1), x:size(d - 1))
      end
      operand.tensor = x:diagonal(0, first - 1, d - 1)
      table.remove(operand.names, d)
      table.remove(operand.names, first)
      operand.names[#operand.names + 1] = name
      at, d = {}, 1
    else
      at[name], d = d, d + 1
    end
  end
end

-- The size of every name; a size of 1 broadcasts.
local function sizes_of(operands)
  local sizes = {}
  for k, operand in ipairs(operands) do
    for d, name in ipairs(operand.names) do
      local size = operand.tensor:size(d - 1)
      local known = sizes[name]
      if known and known ~= 1 and size ~= 1 and known ~= size then
        fail("einsum: operand %d %s: '%s' has size %d there and %d before", k - 1, shape_text(operand.tensor),
          name:find "^-" and "..." or name, size, known)
      end
      if not known or known == 1 then sizes[name] = size end
    end
  end
  return sizes
end

-- Return the output without "->": the dims of the ellipsis, then the letters that occur once in all terms.
local function implicit_output(terms, ellipsis)
  local count, letters, output = {}, {}, {}
  for letter in terms:gmatch "%a" do count[letter] = (count[letter] or 0) + 1 end
  for _, name in ipairs(arguments.sorted_keys(count)) do
    if count[name] == 1 then letters[#letters + 1] = name end
  end
  for d = ellipsis, 1, -1 do output[#output + 1] = "-" .. d end
  return dims.concat(output, letters)
end

local function set_of(list)
  local set = {}
  for d, name in ipairs(list) do set[name] = d end
  return set
end

-- Sum over the names that `keep` does not have.
local function reduce(operand, keep)
  local summed, names = {}, {}
  for d, name in ipairs(operand.names) do
    if keep[name] then names[#names + 1] = name else summed[#summed + 1] = d - 1 end
  end
  if #summed == 0 then return operand end
  return {tensor = operand.tensor:sum(summed), names = names}
end

-- Dims in the order of `names`, expanded to their sizes, in groups that become one dim each.
local function grouped(operand, groups, sizes)
  local at, order, full, shape = set_of(operand.names), {}, {}, {}
  for g, group in ipairs(groups) do
    local product = 1
    for _, name in ipairs(group) do
      order[#order + 1] = at[name] - 1
      full[#full + 1] = sizes[name]
      product = product * sizes[name]
    end
    shape[g] = product
  end
  return operand.tensor:permute(order):expand(full):reshape(shape)
end

-- Return the product of two operands, summed over the letters that occur neither in the rest nor in the output.
local function contract(a, b, keep, sizes)
  local in_a, in_b = set_of(a.names), set_of(b.names)
  local keep_a, keep_b = setmetatable({}, {__index = keep}), setmetatable({}, {__index = keep})
  for name in pairs(in_b) do keep_a[name] = true end
  for name in pairs(in_a) do keep_b[name] = true end
  a, b = reduce(a, keep_a), reduce(b, keep_b)
  in_a, in_b = set_of(a.names), set_of(b.names)
  local batch, own_a, own_b, summed = {}, {}, {}, {}
  for _, name in ipairs(a.names) do
    local group = not in_b[name] and own_a or keep[name] and batch or summed
    group[#group + 1] = name
  end
  for _, name in ipairs(b.names) do
    if not in_a[name] then own_b[#own_b + 1] = name end
  end
  local names = dims.concat(batch, own_a, own_b)
  local size = {}
  for d, name in ipairs(names) do size[d] = sizes[name] end
  local product
  if #summed == 0 then
    product = grouped(a, {batch, own_a, {}}, sizes) * grouped(b, {batch, {}, own_b}, sizes)
  else
    local dtype = C.dtype.promote_types(a.tensor.dtype, b.tensor.dtype)
    a.tensor, b.tensor = a.tensor:to(dtype), b.tensor:to(dtype)
    product = C.matmul(grouped(a, {batch, own_a, summed}, sizes), grouped(b, {batch, summed, own_b}, sizes))
  end
  return {tensor = product:reshape(size), names = names}
end

local function operands_of(...)
  local list, count = {...}, select("#", ...)
  if count == 1 and type(list[1]) == "table" then
    return arguments.check("einsum", "operands", "tensor_list", list[1])
  end
  for k = 1, count do arguments.check("einsum", "operand " .. k - 1, "tensor", list[k]) end
  if count == 0 then fail("einsum: expected at least one operand") end
  return list
end

-- The operands with the names of their dims, the names of the result's, the size of each name.
local function read(equation, ...)
  local tensors, text = operands_of(...), equation:gsub("%s", "")
  local left, right = text:match "^(.-)%->(.*)$"
  local terms, operands, ellipsis = {}, {}, 0
  for term in ((left or text) .. ","):gmatch "(.-)," do terms[#terms + 1] = term end
  if #terms ~= #tensors then
    fail("einsum: the equation '%s' has %d term%s, but %d operand%s passed", equation, #terms,
      #terms == 1 and "" or "s", #tensors, #tensors == 1 and " is" or "s are")
  end
  for k, tensor in ipairs(tensors) do
    local names, covered = names_of(terms[k], equation, tensor:dim(), k - 1)
    ellipsis = math.max(ellipsis, covered)
    operands[k] = {tensor = tensor, names = names}
    without_repeats(operands[k], k - 1)
  end
  local sizes = sizes_of(operands)
  if not right then return operands, implicit_output(text, ellipsis), sizes end
  local _, _, dots = names_of(right, equation)
  local output = names_of(right, equation, dots and #right - 3 + ellipsis or nil)
  local seen = {}
  for _, name in ipairs(output) do
    if not sizes[name] then fail("einsum: '%s' of the output '%s' is in no operand", name, right) end
    if seen[name] then fail("einsum: '%s' is repeated in the output '%s'", name, right) end
    seen[name] = true
  end
  return operands, output, sizes
end

local M = {}

--- The sum of products that an equation such as "bij,bjk->bik" describes: letters name the dims of the operands, a
--- letter that the output lacks is summed over. A letter that occurs twice in one operand selects the diagonal; "..."
--- means dims that broadcast; without "->" the output has the letters that occur once, in alphabetical order, after
--- "...".
--
--     accelhost.einsum("ij,j->i", accelhost.eye(2), accelhost.tensor {1, 2})  --> tensor([1., 2.])
---@param equation string
---@param ... userdata|userdata[] the operands, all of one dtype
function M.einsum(equation, ...)
  arguments.check("einsum", "equation", "string", equation)
  local operands, output, sizes = read(equation, ...)
  local keep_output = set_of(output)
  local result = operands[1]
  for k = 2, #operands do
    local keep = set_of(output)
    for later = k + 1, #operands do
      for _, name in ipairs(operands[later].names) do keep[name] = true end
    end
    result = contract(result, operands[k], keep, sizes)
  end
  result = reduce(result, keep_output)
  local at, order = set_of(result.names), {}
  for d, name in ipairs(output) do order[d] = at[name] - 1 end
  return result.tensor:permute(order)
end

return M
