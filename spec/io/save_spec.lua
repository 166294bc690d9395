--- accelhost.save: the round trip, refused values, and the contents of the file when a save is interrupted.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local nn, optim = accelhost.nn, accelhost.optim

local function there_and_back(object, name)
  local result
  folder.with(function(path)
    accelhost.save(object, path .. "/" .. (name or "file.safetensors"))
    result = accelhost.load(path .. "/" .. (name or "file.safetensors"))
    assert.same({name or "file.safetensors"}, folder.names(path))
  end)
  return result
end

describe("accelhost.save", function()
  it("writes tables with missing whole numbers as they are", function()
    local holes = {}
    for i = 9, 24 do holes[i] = {step = i} end
    assert.same(holes, there_and_back({state = holes, x = accelhost.ones(1)}).state)
  end)

  it("restores every dtype and shape, bit for bit, in safetensors", function()
    for _, dtype in ipairs {
      "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
      "uint64", "bool",
    } do
      for _, shape in ipairs {{}, {0}, {3}, {2, 0, 3}, {2, 3, 4}} do
        local tensor = (accelhost.randn(shape) * 3):abs():to(dtype)
        local back = there_and_back(tensor)
        assert.equal(dtype, back.dtype)
        assert.same(shape, back:shape())
        assert.is_true(back:equal(tensor))
      end
    end
  end)

  it("restores NumPy's dtypes in .npy and .npz, and names bfloat16, which NumPy has not", function()
    for _, dtype in ipairs {
      "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool",
    } do
      local tensor = (accelhost.randn(2, 3) * 3):abs():to(dtype)
      assert.is_true(there_and_back(tensor, "x.npy"):equal(tensor))
      local both = there_and_back({a = tensor, b = tensor:t()}, "x.npz")
      assert.is_true(both.a:equal(tensor))
      assert.is_true(both.b:equal(tensor:t()))
    end
    local half = accelhost.ones(2):to "bfloat16"
    check.raises("NumPy has no bfloat16; convert it first", function() there_and_back(half, "x.npy") end)
    check.raises("'h.npy': NumPy has no bfloat16; convert it first", function() there_and_back({h = half}, "x.npz") end)
  end)

  it("keeps the values that a view, a transposed or an expanded tensor shows", function()
    local base = accelhost.arange(12):view(3, 4)
    local back = there_and_back {
      view = base[{1}], transposed = base:t(), expanded = accelhost.ones(1, 2):expand(3, 2),
      step = base[{{}, {0, 4, 2}}],
    }
    assert.is_true(back.view:equal(base[{1}]))
    assert.is_true(back.transposed:equal(base:t()))
    assert.is_true(back.expanded:equal(accelhost.ones(3, 2)))
    assert.is_true(back.step:equal(base[{{}, {0, 4, 2}}]))
  end)

  it("resumes a run: model and optimizer continue with the same numbers", function()
    local function start()
      accelhost.manual_seed(3)
      local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))
      return model, optim.AdamW(model:parameters(), {lr = 1e-2})
    end
    local function step(model, optimizer, seed)
      accelhost.manual_seed(seed)
      local loss = model(accelhost.randn(16, 4)):square():mean()
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      return loss:item()
    end
    local model, optimizer = start()
    for seed = 1, 3 do step(model, optimizer, seed) end
    local saved = there_and_back {model = model:state_dict(), optimizer = optimizer:state_dict(), step = 3}
    local other, its_optimizer = start()
    other:load_state_dict(saved.model)
    its_optimizer:load_state_dict(saved.optimizer)
    for seed = saved.step + 1, 6 do
      assert.equal(step(model, optimizer, seed), step(other, its_optimizer, seed))
    end
  end)

  it("keeps nested tables with texts, numbers, booleans and any keys", function()
    local tensor = accelhost.arange(3)
    local back = there_and_back {
      text = "Zoë \"quoted\"\n", yes = true, no = false, half = 0.5, third = 1 / 3, big = 2 ^ 60, negative = neg0,
      inf = math.huge, list = {1, {2, {tensor}}}, by_number = {[0] = "a", [7] = tensor}, mixed = {"x", y = 1},
      by_flag = {[true] = 1}, empty = {}, ["$tensor"] = "a text", ["$$"] = 2, nan = 0 / 0,
    }
    assert.equal("Zoë \"quoted\"\n", back.text)
    assert.is_true(back.yes)
    assert.is_false(back.no)
    assert.equal(0.5, back.half)
    assert.equal(1 / 3, back.third)
    assert.equal(2 ^ 60, back.big)
    assert.equal(-math.huge, 1 / back.negative)
    assert.equal(math.huge, back.inf)
    assert.is_true(back.nan ~= back.nan)
    assert.is_true(back.list[2][2][1]:equal(tensor))
    assert.equal("a", back.by_number[0])
    assert.is_true(back.by_number[7]:equal(tensor))
    assert.same({"x", y = 1}, back.mixed)
    assert.same({[true] = 1}, back.by_flag)
    assert.equal(3, there_and_back(3))
    assert.is_false(there_and_back(false))
    assert.same({}, back.empty)
    assert.equal("a text", back["$tensor"])
    assert.equal(2, back["$$"])
  end)

  it("keeps a tensor that occurs in two places once, as one", function()
    local weight = accelhost.ones(2)
    local back = there_and_back {a = weight, b = {weight}}
    back.a:fill_(5)
    assert.equal(5, back.b[1][0]:item())
  end)

  it("drops the history, not the values, of results", function()
    local weight = accelhost.ones(2, {requires_grad = true})
    local back = there_and_back({w = weight, y = weight * 2})
    assert.is_false(back.w.requires_grad)
    assert.is_true(back.y:equal(accelhost.full({2}, 2)))
  end)

  it("refuses unsupported values, by their path", function()
    check.raises("save: the value is a Linear; a file holds tensors, numbers, texts, booleans and tables of them "
      .. "(save its state_dict())", function() there_and_back(nn.Linear(1, 1)) end)
    check.raises("save: 'a.2' is a function", function() there_and_back {a = {1, print}} end)
    check.raises("save: a: a string that is not UTF-8", function() there_and_back {a = "\255"} end)
    local circle = {}
    circle.inner = {circle}
    check.raises("save: 'inner.1' holds itself", function() there_and_back(circle) end)
    check.raises("a .npy file holds one tensor, got a table", function() there_and_back({}, "x.npy") end)
    check.raises("a .npz file holds a table of tensors by name", function() there_and_back({1}, "x.npz") end)
    check.raises("save: path: expected a string, got a tensor", function() accelhost.save("x", accelhost.ones(1)) end)
  end)

  it("refuses a goal that is no file, or in no folder", function()
    folder.with(function(path)
      local one = accelhost.ones(1)
      check.raises("cannot write: its folder does not exist", function() accelhost.save(one, path .. "/no/x") end)
      check.raises("cannot write: it is a folder", function() accelhost.save(one, path) end)
      check.raises("cannot write: not the name of a file", function() accelhost.save(one, path .. "/x/") end)
      check.raises("cannot write: not a file", function() accelhost.save(one, "/dev/null") end)
      assert.same({}, folder.names(path))
    end)
  end)

  it("follows a link and keeps the permissions of the file that it replaces", function()
    folder.with(function(path)
      accelhost.save(accelhost.zeros(1), path .. "/real")
      os.execute(("chmod 640 '%s/real'; ln -s real '%s/link'"):format(path, path))
      accelhost.save(accelhost.ones(1), path .. "/link")
      assert.equal(1, accelhost.load(path .. "/real"):item())
      local lfs = require "lfs"
      assert.equal("link", lfs.symlinkattributes(path .. "/link", "mode"))
      assert.equal("rw-r-----", lfs.attributes(path .. "/real", "permissions"))
    end)
  end)

  it("leaves the old content and nothing else when the disk is full", function()
    folder.with(function(path)
      accelhost.save(accelhost.zeros(1), path .. "/x")
      local script = ("local a = require 'accelhost' a.save(a.ones(1000000), '%s/x')"):format(path)
      local result = run.program({"sh", "-c", "ulimit -f 100; trap '' XFSZ; exec \"$0\" -e \"$1\"", run.path, script})
      assert.equal(1, result.code)
      assert.matches("save: '" .. path .. "/x': cannot write: File too large", result.stderr, 1, true)
      assert.equal(0, accelhost.load(path .. "/x"):item())
      assert.same({"x"}, folder.names(path))
    end)
  end)

  it("leaves a whole file when it is killed at any moment, and the next save removes its other files", function()
    folder.with(function(path)
      local script = ([[
        local a = require "accelhost"
        for i = 1, 1e9 do a.save({a.full({300000}, i), i}, "%s/x") io.write("saved\n") io.flush() end
      ]]):format(path)
      for trial = 1, 8 do
        local wait = 0.05 + 0.013 * trial
        run.program({"sh", "-c", ("timeout -s KILL %.3f \"$0\" -e \"$1\"; true"):format(wait), run.path, script})
        local lfs = require "lfs"
        if lfs.attributes(path .. "/x", "mode") then
          local back = accelhost.load(path .. "/x")
          assert.equal(back[2] * 300000, back[1]:to("float64"):sum():item())
        end
      end
      accelhost.save(1, path .. "/x")
      assert.same({"x"}, folder.names(path))
    end)
  end)

  it("does not remove the file of another writer of the same path", function()
    folder.with(function(path)
      local script = ([[
        local a = require "accelhost"
        for i = 1, 40 do a.save({a.full({50000}, i), i}, "%s/x") end
      ]]):format(path)
      local result = run.program({"sh", "-c", '"$0" -e "$1" & "$0" -e "$1" & "$0" -e "$1" && wait', run.path, script})
      assert.equal(0, result.code, result.stderr)
      assert.equal("", result.stderr)
      local back = accelhost.load(path .. "/x")
      assert.equal(back[2] * 50000, back[1]:to("float64"):sum():item())
      assert.same({"x"}, folder.names(path))
    end)
  end)
end)
