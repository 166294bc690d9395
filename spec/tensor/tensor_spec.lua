local accelhost = require "accelhost"
local check = require "spec.support.check"
local run = require "spec.support.run"

describe("tensor()", function()
  it("makes float32 of numbers and bool of booleans", function()
    assert.equal("float32", accelhost.tensor({{1, 2}, {3, 4}}).dtype)
    assert.equal("bool", accelhost.tensor({true, false}).dtype)
    assert.same({2, 2}, accelhost.tensor({{1, 2}, {3, 4}}):shape())
  end)

  it("makes a 0-dim tensor of a number", function()
    local t = accelhost.tensor(2.5)
    assert.equal(0, t:dim())
    assert.equal(2.5, t:item())
  end)

  it("keeps empty shapes", function()
    assert.same({0}, accelhost.tensor({}):shape())
  end)

  it("refuses ragged tables, fractions for integers and other values", function()
    assert.error_matches(function() accelhost.tensor {{1, 2}, {3}} end, "ragged table: expected 2 items")
    assert.error_matches(function() accelhost.tensor({1.5}, {dtype = "int64"}) end, "1%.5 is not integral")
    assert.error_matches(function() accelhost.tensor {"a"} end, "expected a number")
    assert.error_matches(function() accelhost.tensor({1}, {dtype = "float31"}) end, "unknown dtype 'float31'")
    assert.error_matches(function() accelhost.tensor({1}, {dtyp = "float32"}) end, "unknown option 'dtyp'")
  end)
end)

describe("tensor()", function()
  local tensor = accelhost.tensor
  local function refused(text, ...)
    local values = {...}
    assert.error_matches(function() tensor(unpack(values)) end, text)
  end

  it("refuses tables with holes and with names that are no options", function()
    refused("tensor: item 2 of the table is nil", {1, nil, 3, 4})
    refused("tensor: item 2 of the table is nil", {1, nil, 3})
    refused("tensor: ragged table: expected 2 items at depth 2, got 1", {{1, 2}, {3, nil}})
    refused("tensor: unknown option 'dtyp' .*did you mean 'dtype'", {1, 2, dtyp = "int64"})
    refused("tensor: expected a table of items in order, got the field 'x'", {{1, x = 2}, {3}})
    assert.equal("int64", tensor({1, 2, dtype = "int64"}).dtype)
    local long = {}
    for i = 1, 100 do long[i] = i end
    long.name = 1
    refused("unknown option 'name'", long)
  end)

  it("ends at a table that holds itself", function()
    local endless = {}
    endless[1] = endless
    refused("tensor: tables are nested deeper than 8", endless)
  end)

  it("of booleans and numbers holds numbers", function()
    assert.same({1, 2}, tensor({true, 2}):tolist())
    assert.equal("float32", tensor({{true}, {0.5}}).dtype)
    assert.equal("bool", tensor({true, false}).dtype)
  end)

  it("refuses numbers that its dtype does not hold", function()
    refused("tensor: 300 is outside the range of uint8", {300}, {dtype = "uint8"})
    refused("tensor: 3000000000 is outside the range of int32", {3e9}, {dtype = "int32"})
    refused("tensor: 1e%+19 is outside the range of int64", {1e19}, {dtype = "int64"})
    refused("tensor: inf is outside the range of int64", {math.huge}, {dtype = "int64"})
    refused("not integral", {0 / 0}, {dtype = "int64"})
    assert.equal(255, tensor({-1}, {dtype = "uint8"}):item())
    assert.equal(math.huge, tensor({math.huge}):item())
    assert.equal(-2147483648, tensor({-2 ^ 31}, {dtype = "int32"}):item())
  end)

  it("reports the value received", function()
    refused("tensor: 'data' is missing")
    refused("tensor: expected a number at element 0, got 'abc'", "abc")
    refused("tensor: options: expected a table or a dtype name, got true", {1}, true)
    refused("unknown dtype 'flaot32'", {1}, {dtype = "flaot32"})
  end)
end)

describe("a method", function()
  local x = accelhost.zeros(2, 2)

  it("called with a dot reports that a colon is needed", function()
    local text = "write ':' instead of '.'"
    for name, call in pairs {
      sum = function() return x.sum() end, view = function() return x.view(4) end,
      item = function() return x.item() end,
      add_ = function() return x.add_(1) end, shape = function() return x.shape(0) end,
    } do
      local fine, message = pcall(call)
      assert.is_false(fine)
      assert.matches(name .. ": expected a tensor before it, got ", message)
      assert.truthy(message:find(text, 1, true))
    end
  end)

  it("refuses more arguments than it has", function()
    assert.error_matches(function() x:dim(1) end, "dim: expected at most 1 argument %(input%), got 2")
    assert.error_matches(function() x:size(0, 1) end, "size: expected at most 2 arguments %(input, dim%), got 3")
  end)

  it("is to_string", function()
    assert.equal("\1\2", accelhost.tensor({1, 2}, {dtype = "uint8"}):to_string())
  end)
end)

describe("tables of tensors and integers", function()
  it("have no holes and no names", function()
    local x = accelhost.zeros(2)
    assert.error_matches(function() accelhost.stack {x, nil, x} end, "stack: tensors: item 2 of the table is nil")
    assert.error_matches(function() accelhost.cat {x, b = x} end, "cat: tensors: expected a table of items in order")
    assert.error_matches(function() x:view {1, a = 2} end, "view: size: expected a table of items in order")
  end)
end)

describe("item()", function()
  it("returns a boolean for bool and a number otherwise", function()
    assert.equal(true, accelhost.tensor({true}):item())
    assert.equal(3, accelhost.tensor({3}, {dtype = "int64"}):item())
  end)

  it("wants one element", function()
    assert.error_matches(function() accelhost.zeros(2):item() end, "one element, got shape %(2,%)")
  end)
end)

describe("a tensor's fields", function()
  it("that do not exist name the nearest method", function()
    assert.error_matches(function() return accelhost.zeros(1).reshap end, "did you mean 'reshape'")
  end)

  it("name tile, not repeat, which is a word of Lua", function()
    assert.error_matches(function() return accelhost.zeros(1).repeat_ end, "did you mean 'tile'")
    assert.same({1, 2, 1, 2}, accelhost.tensor({1, 2}):tile(2):tolist())
  end)

  it("cannot be invented", function()
    assert.error_matches(function() accelhost.zeros(1).colour = 1 end, "cannot be set")
  end)

  it("report dtype, device and dims", function()
    local t = accelhost.zeros({2, 3}, {dtype = "f64"})
    assert.equal("float64", t.dtype)
    assert.equal(accelhost.get_default_device(), t.device)
    assert.equal(2, t.ndim)
    assert.same({3, 2}, t.T:shape())
  end)
end)

describe("arguments of an op", function()
  it("may be named in one trailing table", function()
    assert.same({{3}, {7}}, accelhost.tensor({{1, 2}, {3, 4}}):sum({dim = 1, keepdim = true}):tolist())
  end)

  it("may not be given twice", function()
    assert.error_matches(function() accelhost.zeros(2, 2):sum(1, {dim = 1}) end, "'dim' is given twice")
  end)

  it("have checked names and kinds", function()
    assert.error_matches(function() accelhost.zeros(2):sum {dimm = 1} end, "unknown option 'dimm'")
    assert.error_matches(function() accelhost.zeros(2):transpose("a", 1) end, "expected an integer, got 'a'")
    assert.error_matches(function() accelhost.add(1, {}) end, "add: argument 2")
  end)

  it("missing or too many are counted", function()
    assert.error_matches(function() accelhost.zeros(2, 2):transpose(0) end, "argument 3 %(dim1%) is missing")
    assert.error_matches(function() accelhost.zeros(2):relu(1, 2) end, "expected at most 1 arguments")
  end)
end)

describe("a number in the place of an argument", function()
  it("may be a tensor of 0 dims without a gradient", function()
    local x = accelhost.tensor {1, 2, 3}
    assert.same({2, 3}, x:narrow(0, accelhost.tensor(1, {dtype = "int64"}), 2):tolist())
    assert.same({6, 7, 8}, x:add(1, {alpha = accelhost.tensor(5)}):tolist())
    check.raises("narrow: argument 3 (start): expected an integer, got a tensor",
      function() x:narrow(0, accelhost.tensor(1.5), 1) end)
    check.raises("narrow: argument 3 (start): expected an integer, got a tensor",
      function() x:narrow(0, accelhost.tensor({1}, {dtype = "int64"}), 1) end)
    check.raises("add: argument 3 (alpha): expected a number, got a tensor that requires gradients", function()
      x:add(1, {alpha = accelhost.tensor(5):requires_grad_()})
    end)
  end)

  it("true and false are no numbers but where they fill or choose a variance", function()
    local x = accelhost.tensor {1, 2, 3}
    assert.equal("bool", accelhost.full({2}, true).dtype)
    assert.equal("float32", accelhost.full_like(x, true).dtype)
    check.raises("add: argument 3 (alpha): expected a number, got true", function() x:add(1, {alpha = true}) end)
  end)

  it("sizes that an adaptive pool keeps are false, not nil", function()
    check.raises("adaptive_avg_pool2d: output_size: expected integers, or false to keep the input's size, item 1 is",
      function() accelhost.nn.functional.adaptive_avg_pool2d(accelhost.ones(1, 1, 4, 4), {nil, 3}) end)
    check.raises("expected integers", function()
      accelhost.nn.functional.avg_pool2d(accelhost.ones(1, 1, 4, 4), {false, 3})
    end)
    assert.same({1, 1, 4, 3}, accelhost.nn.AdaptiveMaxPool2d({false, 3})(accelhost.ones(1, 1, 4, 4)):shape())
  end)
end)

describe("free()", function()
  it("makes later use an error", function()
    local t = accelhost.zeros(2)
    t:free()
    assert.error_matches(function() return t + 1 end, "expected a tensor")
    assert.error_matches(function() return t:shape() end, "was freed")
  end)
end)

describe("memory", function()
  it("of results that a freed graph held is collected", function()
    local result = run.host {"-e", [[
      local accelhost = require "accelhost"
      local x = accelhost.randn(512, 512, {requires_grad = true})
      local before = accelhost.memory_stats().live
      for _ = 1, 200 do accelhost.nn.functional.softmax(x, -1):sum():backward() end
      print(accelhost.memory_stats().live - before < 64 * 2 ^ 20)
    ]]}
    run.prints("true\n", result)
  end)

  it("of dead tensors is reused without help from the script", function()
    local result = run.host {"-e", [[
      local accelhost = require "accelhost"
      for _ = 1, 2000 do local _ = accelhost.zeros(256, 1024) end
      print(accelhost.memory_stats().peak)
    ]]}
    assert.is_true(tonumber(result.stdout) < 100 * 2 ^ 20, result.output)
  end)

  it("that free() has released causes no collection, that of a graph does", function()
    collectgarbage "stop"
    local function collects(allocate)
      local marker = setmetatable({{}}, {__mode = "v"})
      for _ = 1, 1000 do allocate() end
      return marker[1] == nil
    end
    collectgarbage()
    local freed = collects(function() accelhost.zeros(256, 1024):free() end)
    local seen = collects(function()
      local x = accelhost.zeros(256, 1024)
      local view = x:view(-1)
      x:free()
      view:free()
    end)
    local leaf = accelhost.zeros({256 * 1024}, {requires_grad = true})
    local held = collects(function()
      local twice = leaf * 2
      local _ = twice:dot(twice)
      twice:free()
    end)
    collectgarbage "restart"
    assert.same({false, false, true}, {freed, seen, held})
  end)
end)

describe("with_data", function()
  it("returns an FFI pointer that counts from 0 and bumps the version", function()
    local t = accelhost.zeros(4, {device = "cpu"})
    local version = t._version
    t:with_data(function(p, n) for i = 0, n - 1 do p[i] = i * i end end)
    assert.same({0, 1, 4, 9}, t:tolist())
    assert.is_true(t._version > version)
  end)
end)

describe("split, chunk and unbind", function()
  it("return tables of views", function()
    local t = accelhost.arange(7)
    local function lists(views)
      local out = {}
      for i, view in ipairs(views) do out[i] = view:tolist() end
      return out
    end
    assert.same({{0, 1, 2}, {3, 4, 5}, {6}}, lists(t:split(3)))
    assert.same({{0, 1}, {2, 3, 4, 5, 6}}, lists(t:split({2, 5})))
    assert.same({{0, 1, 2, 3}, {4, 5, 6}}, lists(t:chunk(2)))
    assert.equal(7, #t:unbind())
    assert.error_matches(function() t:split({2, 2}) end, "sizes must sum to 7")
  end)
end)

describe("arguments of split, chunk and unbind", function()
  local x = accelhost.arange(6):view(2, 3)

  it("may be named", function()
    assert.equal(3, #x:split(1, {dim = 1}))
    assert.equal(2, #x:chunk(2, {dim = -1}))
    assert.equal(3, #accelhost.unbind(x, {dim = 1}))
    assert.equal(2, #x:chunk {chunks = 2})
  end)

  it("are checked", function()
    assert.error_matches(function() x:split(1, {dim = "0"}) end, "split: dim: expected an integer, got '0'")
    assert.error_matches(function() x:split(1.5) end, "split_size_or_sections: expected an integer of at least 0")
    assert.error_matches(function() x:split(0) end, "split_size_or_sections: expected an integer of at least 1")
    assert.error_matches(function() x:chunk() end, "chunk: 'chunks' is missing")
    assert.error_matches(function() x:chunk(2, {dims = 1}) end, "chunk: unknown option 'dims' .*did you mean 'dim'")
    assert.error_matches(function() x:unbind(2) end, "unbind: dim 2 is out of range")
  end)

  it("return as many chunks of an empty dim as requested", function()
    local chunks = accelhost.zeros(0, 3):chunk(4)
    assert.equal(4, #chunks)
    assert.same({0, 3}, chunks[4]:shape())
  end)
end)

describe("new_zeros and its kin", function()
  local x = accelhost.zeros(2, {dtype = "float64"})

  it("accept sizes and options as zeros does", function()
    assert.same({2, 3}, x:new_zeros(2, 3):shape())
    assert.same({2, 3}, x:new_ones({2, 3}):shape())
    assert.equal("float64", x:new_empty(2).dtype)
    assert.equal("int64", x:new_zeros({2}, {dtype = "int64"}).dtype)
    assert.equal(true, x:new_full({2}, 3, {requires_grad = true}).requires_grad)
  end)

  it("check them", function()
    assert.error_matches(function() x:new_zeros("2") end, "new_zeros: size: expected an integer of at least 0")
    assert.error_matches(function() x:new_zeros(2, {dtyp = "int64"}) end, "new_zeros: unknown option 'dtyp'")
    assert.error_matches(function() x:new_full({2}) end, "new_full: 'fill_value' is missing")
  end)
end)

describe("operators", function()
  it("print tensors as text", function()
    assert.equal("loss tensor(3.)!", "loss " .. accelhost.tensor(3):cpu() .. "!")
  end)

  it("refuse comparisons that would yield one boolean", function()
    assert.error_matches(function() return accelhost.ones(2) < accelhost.zeros(2) end, "compared by methods")
    assert.error_matches(function() return accelhost.ones(2) >= accelhost.zeros(2) end, "compared by methods")
  end)
end)

describe("from_string", function()
  it("reads the bytes that to_string wrote", function()
    local bytes = accelhost.to_string(accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "int32"}):t())
    assert.same({{1, 3}, {2, 4}}, accelhost.from_string(bytes, {2, 2}, "int32"):tolist())
  end)

  it("reads all bytes in one dim without a size", function()
    assert.same({97, 98, 99}, accelhost.from_string("abc", {dtype = "uint8"}):tolist())
    assert.same({2}, accelhost.from_string(("x"):rep(8)):shape())
    assert.equal(0, accelhost.from_string "":numel())
  end)

  it("refuses a wrong number of bytes", function()
    assert.error_matches(function() accelhost.from_string("abc", {1}, "int32") end, "needs 4 bytes, got 3")
    assert.error_matches(function() accelhost.from_string("abc", {dtype = "int32"}) end,
      "3 bytes are no whole number of int32 elements")
  end)
end)

describe("to", function()
  it("accepts non_blocking and copy by position", function()
    local x = accelhost.ones(2)
    assert.equal("float64", x:to("float64", true, true).dtype)
    assert.is_false(x:to("float32", false, true) == x)
    assert.is_true(x:to(x.device, nil, true) == x)
    assert.equal("float64", x:to("cpu", "float64", true, false).dtype)
    assert.equal("int64", x:to(accelhost.ones({1}, {dtype = "int64"}), true).dtype)
    assert.is_false(x:to("cpu", true, {copy = true}) == x)
    check.raises("to: expected a dtype, non_blocking (true or false) or a table of options, got number 3",
      function() x:to("cpu", 3) end)
    check.raises("to: expected copy (true or false) or a table of options, got number 3",
      function() x:to("float64", true, 3) end)
    check.raises("to: expected nothing more or a table of options, got true",
      function() x:to("float64", true, true, true) end)
  end)

  it("names a device that is not there", function()
    assert.error_matches(function() accelhost.ones(1):to "far9:0" end, 'device "far9": accelhost%-far9.so is not here ')
  end)
end)

describe("equal and allclose", function()
  it("compare whole tensors", function()
    local a = accelhost.tensor {1, 2, math.huge}
    assert.is_true(accelhost.equal(a, a:clone()))
    assert.is_false(a:equal(accelhost.tensor {1, 2}))
    assert.is_true(accelhost.allclose(a, a * (1 + 1e-6)))
    assert.is_false(a:allclose(accelhost.tensor {1, 2.1, math.huge}))
    assert.is_true(a:allclose(accelhost.tensor {1, 2.1, math.huge}, {rtol = 0.1}))
    assert.is_false(a:allclose(accelhost.tensor {1, 2, 3}))
    assert.is_false(accelhost.tensor {3}:allclose(accelhost.tensor {math.huge}))
  end)

  it("compare bools", function()
    local yes, no = accelhost.tensor {true}, accelhost.tensor {false}
    assert.is_true(yes:allclose(yes))
    assert.is_false(yes:allclose(no))
  end)

  it("treat NaN as equal only when asked", function()
    local nan = accelhost.tensor {0 / 0}
    assert.is_false(nan:allclose(nan))
    assert.is_true(nan:allclose(nan, {equal_nan = true}))
    assert.error_matches(function() nan:allclose(nan, {tol = 1}) end, "unknown option 'tol'")
  end)
end)

describe("requires_grad_", function()
  it("accepts its argument by name, too", function()
    local x = accelhost.ones(1):requires_grad_ {requires_grad = true}
    assert.is_true(x.requires_grad)
    assert.is_false(x:requires_grad_({requires_grad = false}).requires_grad)
    assert.error_matches(function() x:requires_grad_ {grad = false} end, "unknown option 'grad'")
    assert.error_matches(function() x:requires_grad_("no") end, "expected true or false, got 'no'")
  end)
end)
