--- Files of PyTorch, safetensors and NumPy (scripts/fixtures/foreign.py): every dtype, NumPy's arrays in pickles,
--- PyTorch before 1.6, parts without a dtype here, and pickles that only fill memory.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local check = require "spec.support.check"
local folder = require "spec.support.folder"

local FILES = "spec/fixtures/files/"

local DTYPES = {
  "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}

-- Return the results of a load, and its warnings.
local function loaded(name)
  local path = FILES .. name
  local warned = {}
  local value, left_out
  local kept = io.stderr
  io.stderr = {write = function(_, ...) warned[#warned + 1] = table.concat {...} end} -- luacheck: ignore 122
  local fine, failure = pcall(function() value, left_out = accelhost.load(path) end)
  io.stderr = kept -- luacheck: ignore 122
  assert(fine, failure)
  return value, left_out, table.concat(warned)
end

describe("accelhost.load of another program's file", function()
  it("reads all 13 dtypes of .safetensors, .npz, .pt and .pt before 1.6", function()
    for _, name in ipairs {"dtypes.safetensors", "dtypes.npz", "dtypes.pt", "dtypes_before_1_6.pt"} do
      local file, left_out, warned = loaded(name)
      assert.same({}, left_out)
      assert.equal("", warned)
      for _, dtype in ipairs(DTYPES) do
        if not (name == "dtypes.npz" and dtype == "bfloat16") then
          assert.equal(dtype, file[dtype].dtype, name)
          local expected = accelhost.tensor({0, 1, 100, -2}, {dtype = "int64"}):to(dtype)
          assert.is_true(file[dtype]:equal(expected), name .. " " .. dtype)
        end
      end
    end
  end)

  it("returns a file's other tensors where dtypes do not exist here, and reports those that it left out", function()
    for _, name in ipairs {"left_out.pt", "left_out_before_1_6.pt"} do
      local file, left_out, warned = loaded(name)
      assert.same({
        float8 = "there is no dtype for torch.float8_e4m3fn here",
        ["nested.list.2"] = "there is no dtype for torch.complex64 here",
      }, left_out)
      assert.matches(("warning: load: '%s': 2 of its tensors left out: 'float8' (there is no dtype for "
        .. "torch.float8_e4m3fn here), 'nested.list.2' (there is no dtype for torch.complex64 here)")
        :format(FILES .. name), warned, 1, true)
      assert.same({1, 5, 9}, file.column:tolist())
      assert.same({0, 3}, file.empty:shape())
      assert.same({1, 1}, file.parameter:tolist())
      assert.equal("float32", file.dtype)
      assert.equal("cpu", file.device)
      assert.same({1}, file.nested.list[1]:tolist())
      file.column:fill_(-1)
      assert.same({4, -1, 6, 7}, file.base[1]:tolist())
      assert.equal(-1, file.transposed[{1, 2}]:item())
    end
    local file, left_out = loaded "left_out.safetensors"
    assert.same({1, 1}, file.kept:tolist())
    assert.same({float8 = "there is no dtype for F8_E4M3 here", complex = "there is no dtype for C64 here"}, left_out)
    file, left_out = loaded "left_out.npz"
    assert.equal("int16", file.kept.dtype)
    assert.same({
      complex = "there is no dtype for '<c8' here",
      objects = "there is no dtype for '|O' here (an array of Python objects is a pickle, which could run code)",
    }, left_out)
    file, left_out = loaded "left_out_arrays.pt"
    assert.same({1, 1}, file.kept:tolist())
    assert.same({
      objects = "an array of Python objects is a pickle, which could run code",
      texts = "there is no dtype for '<U1' here", records = "there is no dtype for records here",
    }, left_out)
  end)

  it("refuses a file that holds nothing else", function()
    for name, reason in pairs {
      ["only_float8.safetensors"] = "'float8': there is no dtype for F8_E4M3 here",
      ["only_objects.pt"] = "an array of Python objects is a pickle, which could run code",
      ["objects.npy"] = "npy: there is no dtype for '|O' here (an array of Python objects is a pickle",
    } do
      check.raises(("load: '%s%s': %s"):format(FILES, name, reason), function() accelhost.load(FILES .. name) end)
    end
  end)

  it("reads NumPy's arrays and scalars in pickles of PyTorch and Python", function()
    for _, name in ipairs {"array.pt", "array_before_1_6.pt"} do
      local array = loaded(name)
      assert.equal("float64", array.dtype)
      assert.same({{0, 1, 2}, {3, 4, 5}}, array:tolist())
    end
    for _, name in ipairs {"arrays.pt", "arrays_before_1_6.pt", "arrays_2.pkl", "arrays_4.pkl", "arrays_5.pkl"} do
      local file, left_out = loaded(name)
      assert.same({}, left_out)
      assert.equal("int32", file.columns.dtype)
      assert.same({{0, 1, 2}, {3, 4, 5}}, file.columns:tolist())
      assert.equal(2.5, file.scalar)
      assert.equal("tensor(1152921504606846977)", tostring(file.large))
      assert.is_true(file.flag:item())
      assert.equal("uint16", file.every_second.dtype)
      assert.same({0, 2, 4, 6, 8}, file.every_second:tolist())
    end
    assert.same({1, 258}, loaded("array_python_2.pkl"):tolist())
  end)

  it("contains the file's name in every refusal of a part of it", function()
    folder.with(function(dir)
      local function pickled(text)
        local file = assert(io.open(dir .. "/x.pkl", "wb"))
        file:write(text)
        file:close()
        local message = check.raises("load: '" .. dir .. "/x.pkl': ", function() accelhost.load(dir .. "/x.pkl") end)
        return message:match "x%.pkl': ([^\n]*)"
      end
      local function short(text) return "U" .. string.char(#text) .. text end
      local dtype = "cnumpy\ndtype\n(" .. short "u1" .. "K\0K\1tR(K\1Ntb"
      local array = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0t" .. short "b" .. "tR"
      for text, reason in pairs {
        ["cos\nsystem\n(U\1xtR."] = "it holds a 'os.system', whose code would have to run",
        ["cnumpy.core.multiarray\nscalar\n."] = "it holds 'numpy.core.multiarray.scalar' of Python as a value",
        ["](K\1"] = "the pickle is damaged: it ends early",
        ["t."] = "the pickle is damaged: a mark is missing",
        ["K\1K\1R."] = "the pickle is damaged: it calls a value that is no function",
        ["K\1K\1b."] = "the pickle is damaged: it sets the state of a value that is no object",
        ["}K\1NNs."] = "the pickle is damaged: expected a dict on its stack",
        ["}]K\1s."] = "a dict has a key that is neither a text, a number nor a boolean",
        ["h\5."] = "the pickle is damaged: it asks for something that it did not keep",
        ["i."] = "the pickle has an operation (105) that is not among the safe ones",
        ["\138\9" .. ("x"):rep(9) .. "."] = "a whole number of 9 bytes, expected at most 8",
        ["K\1Q."] = "a bare pickle with objects outside of it",
        ["]." .. "xyz"] = "3 bytes after its end",
        [("]q\0"):rep(201) .. ("a"):rep(200) .. "."] = "containers nested deeper than 200",
        [array .. "."] = "the pickle is damaged: an array without its parts",
        [array .. "(K\1(K\2t" .. dtype .. "\137U\3abctb."] =
          "npy: (2,) of uint8 does not match the 3 bytes after the header",
        [array .. "(K\1(J\255\255\255\255t" .. dtype .. "\137U\0tb."] =
          "the pickle is damaged: an array's shape is no tuple of sizes",
        [array .. "(K\1" .. ("(" .. ("K\1"):rep(65) .. "t") .. dtype .. "\137U\1atb."] = "npy: more than",
      } do
        assert.equal(reason, pickled("\128\2" .. text):sub(1, #reason))
      end
    end)
  end)

  it("limits the memory that a small pickle can request", function()
    folder.with(function(dir)
      local function zipped(text)
        C.io.write_zip(dir .. "/bomb.pt", {"a/data.pkl"}, {text})
        return dir .. "/bomb.pt"
      end
      local path = FILES .. "deflated_pickle.pt"
      check.raises(("load: '%s': 'a/data.pkl': 1048579 bytes when inflated, at most 1048576 are read"):format(path),
        function() accelhost.load(path) end)
      path = zipped("\128\2" .. ("]"):rep(2 ^ 26) .. ".")
      check.raises(("load: '%s': 'a/data.pkl': 67108867 bytes, at most 67108864 are read"):format(path),
        function() accelhost.load(path) end)
      path = zipped("\128\2" .. ("]"):rep(2 ^ 22 + 1) .. ".")
      collectgarbage()
      local before = collectgarbage "count"
      collectgarbage "stop"
      check.raises(("load: '%s': the pickle makes more than 4194304 values"):format(path),
        function() accelhost.load(path) end)
      local taken = collectgarbage "count" - before
      collectgarbage "restart"
      assert(taken < 300 * 1024, ("%d kB of Lua memory for empty lists"):format(taken))
      path = zipped("\128\2](]})])e.")
      local value = accelhost.load(path)
      assert.same({{}, {}, {}, {}, {}}, value)
      value[1].x = 1
      assert.same({{x = 1}, {}, {}, {}, {}}, value)
    end)
  end)
end)
