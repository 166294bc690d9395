--- The CUDA plugin's declarations of NVIDIA's driver and libraries, against the headers of an installed toolkit.
local run = require "spec.support.run"

local lfs = require "lfs"

local toolkit = os.getenv "CUDA_HOME" or "/usr/local/cuda"

-- change: the text that is replaced and its replacement, an error that must be noticed.
local libraries = {
  {title = "the driver", header = "cuda.h", name = "driver", folder = "driver/api",
    change = {"cuMemFree_v2, %(CUdeviceptr", "cuMemFree_v2, (int"},
    told = "differs from cuda.h: __typeof__(&cuMemFree_v2)"},
  {title = "cuBLASLt", header = "cublasLt.h", name = "blas", folder = "vendor"},
  {title = "NCCL", header = "nccl.h", name = "nccl", folder = "nccl"},
  {title = "NVTX", header = "nvtx3/nvToolsExt.h", name = "nvtx", folder = "vendor",
    change = {"const char %*message", "int message"}},
  {title = "cuSOLVER", header = "cusolverDn.h", name = "solver", folder = "vendor"},
  {title = "cuDNN", header = "cudnn_graph.h", name = "dnn", folder = "vendor"},
}

local function text(path)
  local file = assert(io.open(path))
  local all = file:read "*a"
  file:close()
  return all
end

for _, library in ipairs(libraries) do
  local change = library.change or {"CUstream stream%)", "int stream)"}
  local installed = lfs.attributes(toolkit .. "/include/" .. library.header, "mode") == "file"

  describe("the table of " .. library.title, function()
    local function compile(folder)
      return run.program {"cc", "-std=c11", "-fsyntax-only", "-I" .. folder, "-Ihost", "-isystem",
        toolkit .. "/include", "spec/device/cuda_" .. library.name .. "_check.c"}
    end

    it("has the calls, types and codes of " .. library.header, function()
      if not installed then return pending("needs CUDA's toolkit") end
      local result = compile "host"
      assert.equal("", result.output)
      run.succeeds(result)
    end)

    it("would not pass with another parameter", function()
      if not installed then return pending("needs CUDA's toolkit") end
      local folder, below = os.tmpname(), "cuda/" .. library.folder
      os.remove(folder)
      local folders, made = {folder}, folder
      for name in below:gmatch "[^/]+" do
        made = made .. "/" .. name
        folders[#folders + 1] = made
      end
      for _, each in ipairs(folders) do assert(lfs.mkdir(each)) end
      local path = ("%s/%s.def"):format(below, library.name)
      local planted, times = text("host/" .. path):gsub(change[1], change[2], 1)
      assert.equal(1, times)
      local file = assert(io.open(folder .. "/" .. path, "w"))
      file:write(planted)
      file:close()
      local result = compile(folder)
      os.remove(folder .. "/" .. path)
      for i = #folders, 1, -1 do assert(lfs.rmdir(folders[i])) end
      assert.matches(library.told or "differs from " .. library.header, result.output, 1, true)
      assert.are_not.equal(0, result.code)
    end)
  end)
end
