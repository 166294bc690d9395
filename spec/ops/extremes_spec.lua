-- Every op of the table with unusual arguments: operands that overlap or repeat in memory, empty and 0-dim
-- ones, the extremes of every dtype, arguments far outside their range. The numbers are those of the same op on
-- row-major copies; where there are none, there is an error of the library's own. Nothing may crash or hang, and
-- nothing but the result may change.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local ops = require "spec.support.ops"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local inf, nan = math.huge, 0 / 0
local far = 2 ^ 53 -- the largest integer that Lua hands over

local extremes = {
  bool = {true, false},
  uint8 = {0, 255, 1, 128},
  int32 = {-2 ^ 31, 2 ^ 31 - 1, 0, -1, 1},
  int64 = {-2 ^ 63, 2 ^ 62, 0, -1, 1, -2 ^ 62},
  float32 = {inf, -inf, nan, 0, neg0, 3.4e38, 1e-45, -1, 1},
}
-- Losses of shapes that differ warn; here they do so a thousand times.
local stderr = io.stderr
setup(function() rawset(io, "stderr", {write = function() end}) end)
teardown(function() rawset(io, "stderr", stderr) end)

local dtypes = {"bool", "uint8", "int32", "int64", "float32"}

-- The extremes of a dtype, over and over, in a shape.
local function extreme(shape, dtype)
  local count, values, list = 1, extremes[dtype], {}
  for _, size in ipairs(shape) do count = count * size end
  for k = 1, count do list[k] = values[(k - 1) % #values + 1] end
  if count == 0 then return accelhost.zeros(shape, {dtype = dtype}) end
  return accelhost.tensor(list, {dtype = dtype}):reshape(shape)
end

-- Views of the tensor's shape that are not contiguous.
local layouts = {
  -- one slice, repeated along a dim
  expanded = function(x)
    for d = 0, x:dim() - 1 do
      if x:size(d) > 1 then return x:narrow(d, 0, 1):expand(x:shape()) end
    end
    return x
  end,
  -- windows that overlap: each row starts one element after the row before
  overlapping = function(x)
    local count, sizes, strides = 1, {}, {}
    for d = 1, x:dim() do sizes[d], strides[d], count = x:size(d - 1), 1, count + x:size(d - 1) end
    if x:numel() < 2 then return x end
    local flat = x:reshape(-1)
    local long = accelhost.cat({flat, flat, flat, flat}):narrow(0, 0, math.min(count, 4 * x:numel()))
    return C.as_strided(long, sizes, strides, 0)
  end,
  -- from the middle of a larger tensor, every second element, last dim first
  stepping = function(x)
    if x:dim() == 0 then return accelhost.stack({x, x})[1] end
    local wide = accelhost.stack({x, x}, x:dim())
    local dims = {}
    for d = 1, x:dim() do dims[d] = x:dim() - d end
    return wide:permute({x:dim(), unpack(dims)}):contiguous()[1]:permute(dims)
  end,
}

-- The call's results, or its error.
local function outcome(case, inputs)
  local fine, outputs = pcall(ops.call, case, inputs)
  return fine and outputs or {error = tostring(outputs)}
end

-- An error must be one that the library meant.
local function expect_own_error(what, told)
  local text = told.error
  if not text then return end
  for _, raw in ipairs {"attempt to", "bad argument", "stack overflow", "not enough memory", "invalid value"} do
    if text:find(raw, 1, true) then error(what .. ": a raw error: " .. text, 0) end
  end
end

local function equal(a, b)
  if not accelhost.is_tensor(a) then return a == b end
  if a.dtype ~= b.dtype or not C.same_shape(a, b) then return false end
  local both_nan = a:ne(a):logical_and(b:ne(b))
  if a:eq(b):logical_or(both_nan):all():item() then return true end
  return a:is_floating_point() and accelhost.allclose(a, b, {rtol = 1e-12, atol = 1e-12, equal_nan = true})
end

local function expect_same(what, expected, got)
  expect_own_error(what, expected)
  expect_own_error(what, got)
  for i = 1, math.max(#expected, #got, 1) do
    if expected.error and got.error then return end
    if expected.error or got.error or not equal(expected[i], got[i]) then
      error(("%s: expected %s, got %s"):format(what, expected.error or tostring(expected[i]),
        got.error or tostring(got[i])), 0)
    end
  end
end

-- The same inputs once as they are and once as row-major copies, and inputs unchanged by it.
local function compare(what, case, inputs)
  local copies, before = {}, {}
  for i, input in ipairs(inputs) do
    copies[i], before[i] = input:clone():contiguous(), input:clone()
  end
  local expected = outcome(case, copies)
  expect_same(what, expected, outcome(case, inputs))
  -- running statistics, and the tensor that an op in _ writes, may change
  for i, input in ipairs((case.op == "batch_norm" or case.op:find "_$") and {} or inputs) do
    local same = input:eq(before[i]):logical_or(input:ne(input)):all():item()
    if not same then error(("%s: input %d changed"):format(what, i), 0) end
  end
end

local function inputs_as(case, dtype)
  local inputs = {}
  for i, description in ipairs(case.inputs) do
    local of = description[1]
    local cast = dtype and (of == "float64" or of == "float32")
    inputs[i] = extreme(description[2], cast and dtype or of == "float64" and "float32" or of)
  end
  return inputs
end

-- A case with the k-th argument (or option) replaced.
local function with_argument(case, key, value)
  local args, named = {}, nil
  for k = 1, case.count do args[k] = case.args[k] end
  if type(key) == "number" then
    args[key] = value
  else
    named = {}
    for name, v in pairs(case.named) do named[name] = v end
    named[key] = value
  end
  return setmetatable({args = args, named = named or case.named}, {__index = case})
end

local function variants(value)
  if type(value) == "number" then return {0, -1, far, -far, 1 - far, 0.5, inf, -inf, nan} end
  if type(value) ~= "table" or value.input then return {} end
  local lists = {{}}
  for k = 1, #value do
    if type(value[k]) == "number" then
      for _, odd in ipairs {0, -1, far, -far} do
        local list = {unpack(value)}
        list[k] = odd
        lists[#lists + 1] = list
      end
    end
  end
  lists[#lists + 1] = {far, far}
  lists[#lists + 1] = {2 ^ 32, 2 ^ 32, 1}
  return lists
end

local by_op, names = {}, {}
for _, case in ipairs(ops.cases) do
  if case.op ~= "getitem" then
    if not by_op[case.op] then
      by_op[case.op] = {}
      names[#names + 1] = case.op
    end
    table.insert(by_op[case.op], case)
  end
end

describe("the op table", function()
  it("has a case for every public op", function()
    local missing = {}
    for name in pairs(C) do
      local info = C.op_info(name)
      local public = info and (info.method or info["function"] or info.functional)
      if public and info.name == name and not by_op[name] and not name:find "^empty" then
        missing[#missing + 1] = name
      end
    end
    table.sort(missing)
    assert.equal("", table.concat(missing, " "))
  end)
end)

for _, name in ipairs(names) do
  describe("op " .. name, function()
    for layout, view in pairs(layouts) do
      it("returns the same for " .. layout .. " operands as for copies of them", function()
        for _, case in ipairs(by_op[name]) do
          if ops.any_layout(case) then
            local inputs = ops.inputs(case)
            for i, input in ipairs(inputs) do inputs[i] = view(input) end
            compare(case.name, case, inputs)
          end
        end
      end)
    end

    it("computes the extremes of every dtype, whatever the layout", function()
      for _, case in ipairs(by_op[name]) do
        for _, dtype in ipairs(dtypes) do
          local inputs = inputs_as(case, dtype)
          compare(case.name .. " of " .. dtype, case, inputs)
          for i, input in ipairs(ops.any_layout(case) and inputs or {}) do inputs[i] = layouts.stepping(input) end
          compare(case.name .. " of stepping " .. dtype, case, inputs)
        end
      end
    end)

    it("accepts or refuses empty and 0-dim operands", function()
      for _, case in ipairs(by_op[name]) do
        for i, description in ipairs(case.inputs) do
          for d = 0, #description[2] - 1 do
            local inputs = ops.inputs(case)
            inputs[i] = inputs[i]:narrow(d, 0, 0)
            compare(case.name .. ", one empty", case, inputs)
            for k, other in ipairs(inputs) do
              if other:dim() > d then inputs[k] = other:narrow(d, 0, 0) end
            end
            compare(case.name .. ", all empty", case, inputs)
          end
          local inputs = ops.inputs(case)
          if inputs[i]:numel() > 0 then
            inputs[i] = inputs[i]:reshape(-1)[0]
            compare(case.name .. ", 0-dim", case, inputs)
          end
        end
      end
    end)

    it("accepts or refuses arguments far outside their range", function()
      for _, case in ipairs(by_op[name]) do
        local keys = {}
        for k = 1, case.count do keys[#keys + 1] = k end
        for key in pairs(case.named or {}) do keys[#keys + 1] = key end
        for _, key in ipairs(keys) do
          local value
          if type(key) == "number" then value = case.args[key] else value = case.named[key] end
          for _, odd in ipairs(variants(value)) do
            expect_own_error(case.name, outcome(with_argument(case, key, odd), ops.inputs(case)))
          end
        end
      end
    end)
  end)
end
