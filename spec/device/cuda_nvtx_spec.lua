--- Ranges for a profiler of NVIDIA's that is attached to the process (NVTX), here to the simulated library.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local ffi = require "ffi"
  ffi.cdef "const char *simulated_ranges(void);"
  local function ranges() return ffi.string(ffi.load("SIMULATOR").simulated_ranges()) end
]]

local function run(code, env) return sim.host((HEAD:gsub("SIMULATOR", sim.library)) .. code, env) end

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local result = run(code, env)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

local train = [[
  local x = accelhost.ones({2}, {device = "cuda", requires_grad = true})
  local optimizer = accelhost.optim.SGD({x}, {lr = 0.1})
  local function step()
    local before = #ranges()
    accelhost.profiler.record_function("forward", function() return (x * 2):sum() end):backward()
    optimizer:step()
    return ranges():sub(before + 1)
  end
]]

describe("NVTX", function()
  local seen = "forward%(mul%(%)sum%(%)%)backward%(.*sum%(.*%).*mul%(.*%).*%)SGD%(%)"
  local attached = {["ACCELHOST_NVTX=1"] = {ACCELHOST_NVTX = 1}, ["a profiler"] = {NVTX_INJECTION64_PATH = "/tool.so"}}
  for what, env in pairs(attached) do
    sim.case("has nested ranges of ops, backward, steps and the script with " .. what, function()
      local result = run(train .. "print(step())", env)
      assert.matches("^" .. seen, result.stdout, nil, nil, result.stderr)
      local depth = 0
      for sign in result.stdout:gmatch "[()]" do
        depth = depth + (sign == "(" and 1 or -1)
        assert.is_true(depth >= 0)
      end
      assert.equal(0, depth)
    end)
  end

  case("has none otherwise", "\n", train .. "print(step())")

  sim.case("has those of a profile that asks for them, which records as well", function()
    local result = run(train .. [[
      local inside
      local prof = accelhost.profiler.profile({emit_nvtx = true}, function() inside = step() end)
      print(inside)
      print(#step(), #prof:key_averages() > 3)]])
    assert.matches("^" .. seen .. ".*\n0\ttrue\n$", result.stdout, nil, nil, result.stderr)
  end)

  case("keeps a range balanced where the op in it fails", "mul()add()true\n", train .. [[
    local before = #ranges()
    local fine = pcall(function() return x * accelhost.ones({3}, {device = "cuda"}) end)
    x = x + 1
    print((ranges():sub(before + 1):gsub("ones%(.-%)", ""):gsub("full%(.-%)", "")) .. tostring(not fine))]],
    {ACCELHOST_NVTX = 1})
end)
