--- Files of other programs (scripts/fixtures/files.py makes them).
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local FILES = "spec/fixtures/files/"

local function ramp(...)
  local count = 1
  for _, size in ipairs {...} do count = count * size end
  return accelhost.arange(count, {dtype = "float32"}):view(...) / 4
end

describe("accelhost.load", function()
  it("reads every dtype of a safetensors file that exists here", function()
    local all = accelhost.load(FILES .. "all.safetensors")
    assert.is_true(all.float32:equal(ramp(3, 4)))
    assert.is_true(all.float64:equal(ramp(2):to "float64"))
    assert.is_true(all.float16:equal(ramp(5):to "float16"))
    assert.is_true(all.bfloat16:equal(ramp(2, 2):to "bfloat16"))
    assert.is_true(all.int64:equal(accelhost.arange(7)))
    assert.is_true(all.int32:equal(accelhost.arange(3):to "int32"))
    assert.is_true(all.uint8:equal(accelhost.tensor({1, 255}, {dtype = "uint8"})))
    assert.is_true(all.bool:equal(accelhost.tensor {true, false, true}))
    assert.equal(3.5, all.scalar:item())
    assert.same({0, 3}, all.empty:shape())
    for name, tensor in pairs(all) do
      assert.equal(({scalar = "float32", empty = "float32"})[name] or name, tensor.dtype)
    end
  end)

  it("reads NumPy's files: any byte order, Fortran's order, scalars, packed archives", function()
    local array = accelhost.load(FILES .. "fortran_big_endian.npy")
    assert.is_true(array:equal(accelhost.arange(24, {dtype = "float32"}):view(2, 3, 4)))
    local scalar = accelhost.load(FILES .. "scalar.npy")
    assert.same({}, scalar:shape())
    assert.equal(2.5, scalar:item())
    local stored = accelhost.load(FILES .. "stored.npz")
    assert.is_true(stored.a:equal(accelhost.arange(5)))
    assert.is_true(stored.b:equal(accelhost.eye(2):to "float16"))
    local deflated = accelhost.load(FILES .. "deflated.npz")
    assert.is_true(deflated.a:equal(accelhost.arange(1000)))
    assert.is_true(deflated.flags:equal(accelhost.tensor {true, false}))
  end)

  it("refuses an array of Python objects, which is a pickle", function()
    local reason = "there is no dtype for '|O' here (an array of Python objects is a pickle, which could run code)"
    for _, names in ipairs {{"objects.npy", "npy: "}, {"objects.npz", "'x': "}} do
      check.raises(("load: '%s%s': %s%s"):format(FILES, names[1], names[2], reason),
        function() accelhost.load(FILES .. names[1]) end)
    end
  end)

  it("reads a PyTorch checkpoint: tensors, views that share memory, containers, numbers and texts", function()
    local file = accelhost.load(FILES .. "checkpoint.pt")
    assert.is_true(file.model["0.weight"]:equal(ramp(3, 4)))
    assert.equal(1, file.model["1.num_batches_tracked"]:item())
    assert.equal(3, file.epoch)
    assert.equal(0.125, file.loss)
    assert.is_nil(file.nothing)
    assert.same({true, false}, file.flags)
    assert.same({1, "two"}, file.pair)
    assert.equal(-7, file.negative)
    assert.equal(2 ^ 40, file.big)
    assert.equal(1e300, file.huge)
    assert.equal("Zoë", file.text)
    assert.same({2, 4, 6}, file.every_second:tolist())
    assert.same({a = {{2}}}, file.deep)
    file.shared[1]:fill_(9)
    assert.equal(9, file.shared[2][{0, 0}]:item())
  end)

  it("hands PyTorch's weights and optimizer state to a model of the same shape", function()
    local nn = accelhost.nn
    local file = accelhost.load(FILES .. "checkpoint.pt")
    local model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    model:load_state_dict(file.model)
    assert.is_true(model[1].weight:equal(ramp(3, 4)))
  end)

  it("does not run the code that a pickle requests, and names it", function()
    local message = check.raises("torch.nn.modules.container.Sequential", function()
      accelhost.load(FILES .. "module.pt")
    end)
    assert.matches("whose code would have to run", message, 1, true)
    assert.matches("load: '" .. FILES .. "module.pt': it holds a 'torch.nn.", message, 1, true)
    assert.same({0, 0.25}, accelhost.load(FILES .. "before_1_6.pt").x:tolist())
  end)

  it("copies tensors to the device that map_location names", function()
    local file = accelhost.load(FILES .. "all.safetensors", {map_location = "cpu"})
    assert.equal("cpu", file.float32.device)
    check.raises("map_location", function() accelhost.load(FILES .. "all.safetensors", {map_location = "nowhere"}) end)
  end)

  it("does not change the file when a loaded tensor is written", function()
    accelhost.load(FILES .. "all.safetensors").float32:zero_()
    assert.is_true(accelhost.load(FILES .. "all.safetensors").float32:equal(ramp(3, 4)))
  end)

  -- A safetensors file of float32 zeros under "weight" that is too large to be copied.
  local function large(path, rows, columns)
    local bytes = 4 * rows * columns
    local header = ('{"weight":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}'):format(rows, columns, bytes)
    header = header .. (" "):rep(120 - #header)
    files.write(path, string.char(#header) .. ("\0"):rep(7) .. header)
    assert(os.execute(("truncate -s %d '%s'"):format(128 + bytes, path)) == 0)
  end

  it("reads a small file at once: a program that overwrites it changes no tensor", function()
    folder.with(function(path)
      local name = path .. "/x.safetensors"
      accelhost.save({w = accelhost.ones(1000)}, name)
      local w = accelhost.load(name).w
      files.write(name, ("\0"):rep(8000))
      assert.equal(1000, w:sum():item())
      files.write(name, "")
      assert.equal(1000, w:sum():item())
    end)
  end)

  it("maps a large file, and load_state_dict reports that it was written to since", function()
    folder.with(function(path)
      local name = path .. "/x.safetensors"
      large(name, 4200, 4000)
      local net = accelhost.nn.Linear(4000, 4200, {bias = false})
      local state = accelhost.load(name)
      net:load_state_dict(state)
      assert.equal(0, net.weight:abs():max():item())
      large(path .. "/y.safetensors", 4200, 4000)
      assert(os.rename(path .. "/y.safetensors", name))
      net:load_state_dict(state) -- a file renamed over it leaves the mapped one as it was
      state = accelhost.load(name)
      local file = assert(io.open(name, "r+b"))
      file:seek("set", 4096)
      file:write "abcd"
      file:close()
      assert.error_matches(function() net:load_state_dict(state) end,
        "load_state_dict: 'weight': '.*/x.safetensors' was written to after it was loaded, so the tensors")
      local optimizer = accelhost.optim.SGD(net:parameters(), {lr = 1, momentum = 0.9})
      local groups = {{lr = 1, momentum = 0.9, params = {0}}}
      assert.error_matches(function()
        optimizer:load_state_dict {state = {[0] = {momentum_buffer = state.weight}}, param_groups = groups}
      end, "SGD: load_state_dict: state 'momentum_buffer' of parameter 1: '.*/x.safetensors' was written to after it")
      net:load_state_dict(accelhost.load(name))
      assert.is_true(net.weight:abs():max():item() > 0)
    end)
  end)

  it("names the large file that was cut in the end of a process that reads it", function()
    folder.with(function(path)
      local name = path .. "/x.safetensors"
      large(name, 4200, 4000)
      local result = run.script([[
        local w = require "accelhost".load(arg[1]).weight
        assert(os.execute("truncate -s 8192 '" .. arg[1] .. "'") == 0)
        print(w:sum():item())]], {args = {name}})
      assert.equal(128 + 7, result.code, result.output)
      run.prints("", result)
      assert.is_truthy(result.stderr:find(("accelhost: cannot read '%s', which was loaded: another program has cut the "
        .. "file since"):format(name), 1, true), result.stderr)
    end)
  end)

  it("reports why a file cannot be read", function()
    folder.with(function(path)
      check.raises("load: '" .. path .. "/none': there is no such file",
        function() accelhost.load(path .. "/none") end)
      check.raises("load: '" .. path .. "': it is a folder", function() accelhost.load(path) end)
      for _, text in ipairs {"", "x", "some text that is longer than a header"} do
        local file = assert(io.open(path .. "/text", "wb"))
        file:write(text)
        file:close()
        check.raises("is in no format that is read here (safetensors, .npy, .npz, .pt), or cut",
          function() accelhost.load(path .. "/text") end)
      end
      os.execute("mkfifo '" .. path .. "/pipe'")
      check.raises("it is neither a file nor a folder", function() accelhost.load(path .. "/pipe") end)
    end)
  end)

  it("refuses a file of every kind that lost its end or gained one", function()
    folder.with(function(path)
      for _, name in ipairs {
        "all.safetensors", "fortran_big_endian.npy", "stored.npz", "deflated.npz", "checkpoint.pt",
      } do
        local file = assert(io.open(FILES .. name, "rb"))
        local text = file:read "*a"
        file:close()
        local function written(bytes)
          local copy = assert(io.open(path .. "/copy", "wb"))
          copy:write(bytes)
          copy:close()
          return path .. "/copy"
        end
        accelhost.load(written(text))
        for _, cut in ipairs {1, 2, 9, math.floor(#text / 2), #text - 12} do
          assert.is_false(pcall(accelhost.load, written(text:sub(1, -1 - cut))), name .. " without " .. cut)
        end
        assert.is_false(pcall(accelhost.load, written(text .. "x")), name .. " and a byte")
      end
    end)
  end)

  it("finds a changed byte of an archive by its checksum", function()
    folder.with(function(path)
      local file = assert(io.open(FILES .. "stored.npz", "rb"))
      local text = file:read "*a"
      file:close()
      local at = text:find("\147NUMPY", 1, true) + 128
      local copy = assert(io.open(path .. "/copy", "wb"))
      copy:write(text:sub(1, at - 1), "\7", text:sub(at + 1))
      copy:close()
      check.raises("is damaged: its checksum differs", function() accelhost.load(path .. "/copy") end)
    end)
  end)
end)
