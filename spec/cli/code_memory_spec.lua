--- Memory for LuaJIT's machine code: it must be near the program, where other mappings may have used everything.
local run = require "spec.support.run"

-- Allocate all free memory within 2 GiB of the program, as large libraries and pinned memory would; returns how much.
local surround = [[
  local ffi = require "ffi"
  ffi.cdef "void *mmap(void *, size_t, int, int, int, long); void *luaL_newstate(void);"
  local function surround()
    local code, allocated = tonumber(ffi.cast("uintptr_t", ffi.C.luaL_newstate)), 0
    local from, to = math.floor((code - 2 ^ 31) / 2 ^ 24) * 2 ^ 24, code + 2 ^ 31
    for _, size in ipairs {2 ^ 24, 2 ^ 20, 2 ^ 16} do
      for at = from, to, size do
        -- PROT_NONE; private, anonymous, without swap, at this address or not at all.
        local got = ffi.C.mmap(ffi.cast("void *", at), size, 0, 0x104022, -1, 0)
        if tonumber(ffi.cast("uintptr_t", got)) == at then allocated = allocated + size end
      end
    end
    return allocated
  end
]]

describe("LuaJIT's compiler", function()
  it("makes code, also after a flush, when all memory around the program is allocated", function()
    if not jit.status() then return pending "needs LuaJIT's compiler" end
    local result = run.host({"-e", surround .. [[
      local allocated = surround()
      local made, given_up = 0, 0
      jit.attach(function(event, _, _, _, why)
        if event == "stop" then made = made + 1 end
        if event == "abort" and why == 27 then given_up = given_up + 1 end
      end, "trace")
      local total = 0
      for round = 1, 20 do
        jit.flush()
        for i = 1, 1000 do total = total + i % 7 end
        assert(loadstring "local s = 0 for i = 1, 1000 do s = s + i * 2 end")()
      end
      print(allocated > 3 * 2 ^ 30, made >= 40, given_up)]]}, {timeout = 60})
    run.prints("true\ttrue\t0\n", result)
  end)
end)
