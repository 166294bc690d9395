--- What the CUDA plugin declares of NVIDIA's libraries, next to the toolkit's headers where those are installed.
local run = require "spec.support.run"

local lfs = require "lfs"

local toolkit = os.getenv "CUDA_HOME" or "/usr/local/cuda"

local libraries = {
  {title = "cuBLASLt", header = "cublasLt.h", check = "spec/device/cuda_blas_check.c"},
}

for _, library in ipairs(libraries) do
  local installed = lfs.attributes(toolkit .. "/include/" .. library.header, "mode") == "file"

  describe("the table of " .. library.title, function()
    local function compile(...)
      return run.program {"cc", "-std=c11", "-fsyntax-only", "-Ihost", "-isystem", toolkit .. "/include", ...}
    end

    it("has the calls, types and codes of " .. library.header, function()
      if not installed then return pending("needs CUDA's toolkit") end
      local result = compile(library.check)
      assert.equal("", result.output)
      assert.equal(0, result.code)
    end)

    it("would not pass with another result", function()
      if not installed then return pending("needs CUDA's toolkit") end
      local result = compile("-Dsize_t=float", "-include", "stddef.h", library.check)
      assert.are_not.equal(0, result.code)
    end)
  end)
end
