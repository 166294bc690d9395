--- What the CUDA plugin declares of NVIDIA's driver, next to the toolkit's header where that is installed.
local run = require "spec.support.run"

local lfs = require "lfs"

local toolkit = os.getenv "CUDA_HOME" or "/usr/local/cuda"
local installed = lfs.attributes(toolkit .. "/include/cuda.h", "mode") == "file"

local function compile(folder)
  return run.program {"cc", "-std=c11", "-fsyntax-only", "-I" .. folder, "-Ihost", "-isystem", toolkit .. "/include",
    "spec/device/cuda_driver_check.c"}
end

local function text(path)
  local file = assert(io.open(path))
  local all = file:read "*a"
  file:close()
  return all
end

describe("the CUDA driver's table", function()
  it("has the calls, types and codes of cuda.h", function()
    if not installed then return pending("needs CUDA's toolkit") end
    local result = compile "host"
    assert.equal("", result.output)
    assert.equal(0, result.code)
  end)

  it("would not pass with another parameter", function()
    if not installed then return pending("needs CUDA's toolkit") end
    local folder = os.tmpname()
    os.remove(folder)
    assert(lfs.mkdir(folder) and lfs.mkdir(folder .. "/cuda"))
    local planted, times = text("host/cuda/driver.def"):gsub("cuMemFree_v2, %(CUdeviceptr", "cuMemFree_v2, (int")
    assert.equal(1, times)
    local file = assert(io.open(folder .. "/cuda/driver.def", "w"))
    file:write(planted)
    file:close()
    local result = compile(folder)
    os.remove(folder .. "/cuda/driver.def")
    assert(lfs.rmdir(folder .. "/cuda") and lfs.rmdir(folder))
    assert.matches("differs from cuda.h: __typeof__%(&cuMemFree_v2%)", result.output)
    assert.are_not.equal(0, result.code)
  end)
end)
