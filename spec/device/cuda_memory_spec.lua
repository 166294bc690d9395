--- A device's memory when it runs short, and when lengths vary. On the simulated GPU.
local sim = require "spec.support.sim"

-- What a program prints on a simulated GPU with so much memory.
local function on_sim(memory, code, env)
  local all = {ACCELHOST_SIM_MEMORY = memory, ACCELHOST_SIM_DELAY = "0"}
  for name, value in pairs(env or {}) do all[name] = value end
  local result = sim.host("local accelhost = require 'accelhost'\nlocal MIB = 2 ^ 20\n" .. [[
    local function tensor(mib) return accelhost.empty({mib * 262144}, {device = "cuda"}) end
    local function stats() return accelhost.cuda.memory_stats() end
  ]] .. code, all)
  assert.equal(0, result.code, result.stderr)
  return result.stdout
end

local case = sim.case

describe("The memory of a device", function()
  case("serves a kernel's scratch memory from what the collector has yet to free", function()
    -- Scratch memory is larger than what is free, and no tensor is made after the garbage.
    assert.equal("true\ttrue\t0\n", on_sim("512MiB", [[
      local keys = tensor(16):fill_(1)
      local kept = tensor(340)
      collectgarbage()
      collectgarbage "stop"
      for _ = 1, 4 do tensor(12) end
      local sorted = keys:sort()
      local now = stats()
      print(sorted:numel() == keys:numel(), now.num_alloc_retries > 0, now.num_ooms)]]))
  end)

  case("counts what failed although garbage and cache were freed", function()
    assert.equal("false\t1\t1\n", on_sim("64MiB", [[
      local done = pcall(tensor, 100)
      print(done, stats().num_alloc_retries, stats().num_ooms)]]))
  end)

  case("is left to the collector by what is free, not by what lives", function()
    -- 1 GiB, of which 640 MiB live: by half of what lives 320 MiB of temporaries would be left.
    local peak = tonumber(on_sim("1GiB", [[
      local kept = tensor(640)
      for _ = 1, 300 do tensor(4) end
      print(stats()["allocated_bytes.all.peak"] / MIB)]]))
    assert.is_true(peak <= 640 + 64 + 2 * 4, peak)
  end)

  case("may hold more garbage where much is free", function()
    local function collections(memory)
      return tonumber(on_sim(memory, [[
        local count = 0
        local function watch()
          local canary = newproxy(true)
          getmetatable(canary).__gc = function() count = count + 1; watch() end
        end
        watch()
        for _ = 1, 300 do tensor(4) end
        print(count)]]))
    end
    local few, many = collections "4GiB", collections "256MiB"
    assert.is_true(few < many, few .. " and " .. many)
  end)
end)
