--- The architectures that `make` compiles the CUDA kernels for, with programs in place of the driver's and nvcc.
local run = require "spec.support.run"

-- scripts/cuda/archs.sh with these programs' outputs.
local function archs(driver, cards, known)
  local shell = [[folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
    fake() { printf '#!/bin/sh\nprintf "%%b" "%s"\n' "$2" > "$folder/$1"; chmod +x "$folder/$1"; }
    fake ldconfig "$1"; fake nvidia-smi "$2"; fake nvcc "$3"
    PATH=$folder:$PATH scripts/cuda/archs.sh "$folder/nvcc" "80 90"]]
  local result = run.program({"sh", "-c", shell, "sh", driver, cards, known})
  assert.equal("", result.stderr)
  return result.stdout
end

local driver, known = [[\tlibcuda.so.1 (libc6) => /x/libcuda.so.1\n]], [[sm_80\nsm_89\nsm_90\n]]

describe("The architectures of the CUDA kernels", function()
  it("are those of the cards, each once", function()
    assert.equal("90\n", archs(driver, [[9.0\n9.0\n]], known))
    assert.equal("80 89\n", archs(driver, [[8.9\n8.0\n]], known))
  end)

  it("are the default where the driver lists no cards, or nvcc does not know one", function()
    assert.equal("80 90\n", archs(driver, "", known))
    assert.equal("80 90\n", archs(driver, [[9.0\n12.1\n]], known))
  end)

  it("are none where there is no driver", function()
    local file = io.open "/proc/driver/nvidia/version"
    if file then
      file:close()
      return pending "needs a machine without an NVIDIA driver"
    end
    assert.equal("", archs([[\tlibc.so.6 (libc6) => /x/libc.so.6\n]], [[9.0\n]], known))
  end)
end)
