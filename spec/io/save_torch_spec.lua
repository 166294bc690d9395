--- accelhost.save in PyTorch's format: the pickle's contents, byte for byte against a file that PyTorch read
--- (scripts/fixtures/written.py), and accelhost.load's result for it.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local nn = accelhost.nn

local DTYPES = {
  "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}

local function there_and_back(object)
  local result, left_out
  folder.with(function(dir)
    accelhost.save(object, dir .. "/x.pt")
    result, left_out = accelhost.load(dir .. "/x.pt")
    assert.same({"x.pt"}, folder.names(dir))
  end)
  assert.same({}, left_out)
  return result
end

-- The value from which spec/fixtures/files/written.pt was written.
local function example()
  local dtypes = {}
  for _, dtype in ipairs(DTYPES) do
    dtypes[dtype] = accelhost.tensor({0, 1, 100, -2}, {dtype = "int64"}):to(dtype)
  end
  local base, list = accelhost.arange(12, {dtype = "float32"}):view(3, 4), {1, "two"}
  return {
    dtypes = dtypes, base = base, column = base[{{}, 1}], transposed = base:t(), twice = {base, base},
    every_third = accelhost.arange(10)[{{0, 10, 3}}], expanded = accelhost.ones(1, 2):expand(3, 2),
    scalar = accelhost.tensor(2.5), empty = accelhost.zeros(0, 3),
    part = accelhost.arange(9, {dtype = "uint16"})[{{2, 5}}],
    numbers = {
      1, -1, 255, 256, 65535, 65536, -2 ^ 31, 2 ^ 31, 2 ^ 53, -2 ^ 53, 0.5, neg0, 1e300, math.huge, -math.huge,
    },
    text = "Zoë", bytes = "\255\0\128a", flag = true, off = false, [3] = "three", list = list, same_list = list,
    none = {}, deep = {a = {{b = {}}}},
  }
end

local content = files.read

describe("accelhost.save to .pt", function()
  it("returns every value of a nested table to accelhost.load, with its dtype, shape and memory", function()
    local value = example()
    local back = there_and_back(value)
    for _, dtype in ipairs(DTYPES) do
      assert.equal(dtype, back.dtypes[dtype].dtype)
      assert.is_true(back.dtypes[dtype]:equal(value.dtypes[dtype]), dtype)
    end
    for _, name in ipairs {"base", "column", "transposed", "every_third", "expanded", "scalar", "empty", "part"} do
      assert.same(value[name]:shape(), back[name]:shape(), name)
      assert.is_true(back[name]:equal(value[name]), name)
    end
    for _, name in ipairs {"numbers", "text", "bytes", "flag", "off", 3, "list", "none", "deep"} do
      assert.same(value[name], back[name], tostring(name))
    end
    assert.equal(-math.huge, 1 / back.numbers[12])
    assert.is_true(rawequal(back.list, back.same_list))
    assert.is_true(rawequal(back.base, back.twice[1]) and rawequal(back.base, back.twice[2]))
    back.column:fill_(-1)
    assert.same({{0, -1, 2, 3}, {4, -1, 6, 7}, {8, -1, 10, 11}}, back.base:tolist())
    assert.same({-1, -1, -1}, back.transposed[1]:tolist())
    assert.is_true(there_and_back({nan = 0 / 0}).nan ~= 0)
    assert.same({{1, 1}}, there_and_back(accelhost.ones(1, 2)):tolist())
    assert.equal("text", there_and_back "text")
  end)

  it("writes the bytes that PyTorch 2.15 has read", function()
    folder.with(function(dir)
      accelhost.save(example(), dir .. "/written.pt")
      assert.is_true(content(dir .. "/written.pt") == content "spec/fixtures/files/written.pt",
        "spec/fixtures/files/written.pt differs: write it again and check it with scripts/fixtures/written.py")
    end)
  end)

  it("is an archive of stored entries whose elements are aligned, and a pickle of protocol 2", function()
    folder.with(function(dir)
      local x = accelhost.arange(4, {dtype = "float32"})
      accelhost.save({x = x, y = x[{{1, 3}}], z = accelhost.ones({2}, {dtype = "uint16"})}, dir .. "/x.pt")
      local archive, names = C.io.zip(dir .. "/x.pt")
      assert.same({
        "archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/data/1", "archive/version",
      }, names)
      local function text(i) return C.io.zip_text(archive, i, 1e6, 0) end
      assert.equal("little", text(2))
      assert.equal(x:to_string(), text(3))
      assert.equal("\1\0\1\0", text(4))
      assert.equal("3\n", text(5))
      local bytes = content(dir .. "/x.pt")
      for _, i in ipairs {3, 4} do
        local at = bytes:find(text(i), bytes:find(names[i], 1, true), true)
        assert.equal(0, (at - 1) % 64)
      end
      local function str(word) return "X" .. string.char(#word) .. "\0\0\0" .. word end
      assert.equal("\128\2}q\0("
        .. str "x" .. "ctorch._utils\n_rebuild_tensor_v2\nq\1((" .. str "storage" .. "q\2ctorch\nFloatStorage\nq\3"
        .. str "0" .. str "cpu" .. "q\4K\4tQK\0(K\4t(K\1t\137ccollections\nOrderedDict\nq\5)RtRq\6"
        .. str "y" .. "h\1((h\2h\3" .. str "0" .. "h\4K\4tQK\1(K\2t(K\1t\137h\5)RtRq\7"
        .. str "z" .. "ctorch._utils\n_rebuild_tensor_v3\nq\8((h\2ctorch.storage\nUntypedStorage\nq\9"
        .. str "1" .. "h\4K\4tQK\0(K\2t(K\1t\137h\5)Rctorch\nuint16\nq\10tRq\11u.", text(1))
    end)
  end)

  it("writes of a storage the part that the saved tensors span, and one tensor without its gaps", function()
    folder.with(function(dir)
      local big = accelhost.zeros(1000, 100)
      accelhost.save({row = big[500]}, dir .. "/row.pt")
      accelhost.save({column = big[{{}, 3}]}, dir .. "/column.pt")
      accelhost.save({a = big[10], b = big[{{10, 12}}]}, dir .. "/shared.pt")
      assert(#content(dir .. "/row.pt") < 400 + 1500)
      assert(#content(dir .. "/column.pt") < 4000 + 1500)
      assert(#content(dir .. "/shared.pt") < 800 + 1500)
      local shared = accelhost.load(dir .. "/shared.pt")
      shared.a:fill_(1)
      assert.equal(100, shared.b:sum():item())
    end)
  end)

  it("hands a model's and an optimizer's state over to another", function()
    local function start()
      local model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
      local optimizer = accelhost.optim.Adam(model:parameters(), {lr = 0.01})
      return model, optimizer
    end
    local function step(model, optimizer)
      optimizer:zero_grad()
      model(accelhost.arange(20, {dtype = "float32"}):view(5, 4) / 7):pow(2):sum():backward()
      optimizer:step()
    end
    local model, optimizer = start()
    step(model, optimizer)
    local state = there_and_back {model = model:state_dict(), optimizer = optimizer:state_dict()}
    local other, again = start()
    other:load_state_dict(state.model)
    again:load_state_dict(state.optimizer)
    step(model, optimizer)
    step(other, again)
    assert.is_true(model[1].weight:equal(other[1].weight))
  end)

  it("refuses unsupported values by their path, and leaves no file", function()
    folder.with(function(dir)
      local function raises(value, text) check.raises(text, function() accelhost.save(value, dir .. "/x.pt") end) end
      raises({a = {b = print}}, "save: 'a.b' is a function; a file holds tensors, numbers")
      raises({net = nn.Linear(1, 1)}, "save: 'net' is a Linear; a file holds tensors, numbers, texts, booleans and "
        .. "tables of them (save its state_dict())")
      raises({[accelhost.ones(1)] = 1}, "a file holds tensors")
      local deep = {}
      for _ = 1, 201 do deep = {deep} end
      raises(deep, "tables nested deeper than 200")
      assert.same({}, folder.names(dir))
    end)
  end)

  it("keeps a table that contains itself", function()
    local value = {name = "loop"}
    value.again = value
    local back = there_and_back(value)
    assert.is_true(rawequal(back, back.again))
  end)
end)
